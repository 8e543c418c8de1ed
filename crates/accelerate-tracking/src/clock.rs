//! Times as files and services write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time now, since the start of 1970.
pub(crate) fn since_epoch() -> Duration {
    // A clock before 1970 is not set: zero says so best.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time now in seconds since the start of 1970.
pub(crate) fn unix_seconds() -> f64 {
    since_epoch().as_secs_f64()
}

/// The time now in milliseconds since the start of 1970.
pub(crate) fn unix_millis() -> i64 {
    i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX)
}

/// A moment as year, month, day, hour, minute and second in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
}

impl Moment {
    /// The moment so long after the start of 1970.
    pub(crate) fn at(since_epoch: Duration) -> Self {
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        let (year, month, day) = date(seconds / 86_400);
        Self {
            year,
            month,
            day,
            second_of_day: seconds % 86_400,
        }
    }

    /// Such as `20260131` + `separator` + `235959`.
    pub(crate) fn compact(self, separator: char) -> String {
        let (hour, minute, second) = self.time();
        format!(
            "{:04}{:02}{:02}{separator}{hour:02}{minute:02}{second:02}",
            self.year, self.month, self.day
        )
    }

    /// Such as `2026-01-31T23:59:59`.
    pub(crate) fn iso(self) -> String {
        let (hour, minute, second) = self.time();
        format!(
            "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}",
            self.year, self.month, self.day
        )
    }

    fn time(self) -> (i64, i64, i64) {
        let second = self.second_of_day;
        (second / 3600, second / 60 % 60, second % 60)
    }
}

/// The Gregorian date of a day since 1970-01-01.
///
/// Counts in years that begin with March, so that the day that comes every four years is the last.
fn date(day_since_1970: i64) -> (i64, i64, i64) {
    let day = day_since_1970 + 719_468;
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let moment = Moment::at(Duration::from_secs(seconds));
            assert_eq!(moment.iso(), expected, "{seconds}");
        }
        assert_eq!(
            Moment::at(Duration::from_secs(951_782_399)).compact('_'),
            "20000228_235959"
        );
    }
}
