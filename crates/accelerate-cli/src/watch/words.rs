//! Numbers, times and sizes in few characters.

use std::time::Duration;

/// A number with four digits, or in powers of ten where it is very large or small.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = match size {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Seconds of a step.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        short if short < 0.1 => format!("{:.1} ms", short * 1000.0),
        short if short < 10.0 => format!("{short:.2} s"),
        long if long < 120.0 => format!("{long:.1} s"),
        long => duration(Duration::try_from_secs_f64(long).unwrap_or_default()),
    }
}

/// A long time.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes} min {rest:02} s"),
        _ => format!("{hours} h {minutes:02} min"),
    }
}

/// A number of bytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "three digits are shown, and f64 has fifteen"
)]
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut rest = count as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if rest < 1024.0 {
            break;
        }
        rest /= 1024.0;
        unit = next;
    }
    format!("{rest:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.123_456, "0.1235"),
            (2.0, "2.000"),
            (12.345, "12.35"),
            (123.45, "123.5"),
            (65_536.0, "65536"),
            (0.000_02, "2.00e-5"),
            (-3e7, "-3.00e7"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn times_and_sizes_have_their_units() {
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(1.5), "1.50 s");
        assert_eq!(seconds(300.0), "5 min 00 s");
        assert_eq!(duration(Duration::from_secs(3 * 3600 + 62)), "3 h 01 min");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }
}
