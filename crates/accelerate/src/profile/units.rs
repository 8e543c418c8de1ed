//! Times, bytes and shares as PyTorch's tables show them.

use std::time::Duration;

use super::TimeUnit;

const KIB: i64 = 1024;
const MIB: i64 = 1024 * KIB;
const GIB: i64 = 1024 * MIB;

/// A time in microseconds; the mean of several may lie between two nanoseconds.
pub(super) fn time(microseconds: f64, unit: Option<TimeUnit>) -> String {
    match unit.unwrap_or_else(|| TimeUnit::fitting(microseconds)) {
        TimeUnit::Seconds => format!("{:.3}s", microseconds / 1e6),
        TimeUnit::Milliseconds => format!("{:.3}ms", microseconds / 1e3),
        TimeUnit::Microseconds => format!("{microseconds:.3}us"),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to a hundred days of nanoseconds"
)]
pub(super) fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

impl TimeUnit {
    fn fitting(microseconds: f64) -> Self {
        if microseconds >= 1e6 {
            Self::Seconds
        } else if microseconds >= 1e3 {
            Self::Milliseconds
        } else {
            Self::Microseconds
        }
    }
}

pub(super) fn share(part: Duration, whole: Duration) -> String {
    if whole.is_zero() {
        return "NaN".to_owned();
    }
    format!("{:.2}%", part.as_secs_f64() * 100.0 / whole.as_secs_f64())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "two decimals are shown of what is far below the precision"
)]
pub(super) fn memory(bytes: i64) -> String {
    let in_units = |unit: i64| bytes as f64 / unit as f64;
    match bytes.saturating_abs() {
        size if size >= GIB => format!("{:.2} GB", in_units(GIB)),
        size if size >= MIB => format!("{:.2} MB", in_units(MIB)),
        size if size >= KIB => format!("{:.2} KB", in_units(KIB)),
        _ => format!("{bytes} B"),
    }
}

/// By what operations are divided so that the fewest of a table are shown in full, and its name.
pub(super) fn flops_unit(fewest: u64) -> (f64, &'static str) {
    match fewest {
        0..1_000 => (1.0, "FLOPs"),
        1_000..1_000_000 => (1e-3, "KFLOPs"),
        1_000_000..1_000_000_000 => (1e-6, "MFLOPs"),
        1_000_000_000..1_000_000_000_000 => (1e-9, "GFLOPs"),
        1_000_000_000_000..1_000_000_000_000_000 => (1e-12, "TFLOPs"),
        _ => (1e-15, "PFLOPs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_as_in_pytorch() {
        let of = |duration| time(microseconds(duration), None);
        assert_eq!(of(Duration::from_nanos(51_273_000)), "51.273ms");
        assert_eq!(of(Duration::from_micros(171)), "171.000us");
        assert_eq!(of(Duration::from_secs(2)), "2.000s");
        assert_eq!(time(5e3, Some(TimeUnit::Seconds)), "0.005s");
        assert_eq!(
            share(Duration::from_secs(1), Duration::from_secs(8)),
            "12.50%"
        );
        assert_eq!(share(Duration::ZERO, Duration::ZERO), "NaN");
        assert_eq!(memory(-2048), "-2.00 KB");
        assert_eq!(memory(492), "492 B");
        assert_eq!(memory(99_457_434), "94.85 MB");
        assert_eq!(flops_unit(5_120_000), (1e-6, "MFLOPs"));
    }
}
