use std::num::NonZeroU64;

use crate::{Error, Result};

/// The settings of PowerSGD.
///
/// # Source
/// `torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState`; in the
/// original, `comm_state_option`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerSgdOptions {
    /// The number of columns of the thin matrices: more is more exact and sends more.
    pub matrix_approximation_rank: NonZeroU64,
    /// The number of steps with plain averages before compression begins. (The original
    /// writes `start_powerSGD_iter`.)
    pub start_power_sgd_iter: u64,
    /// A gradient is compressed only where that sends this many times fewer values.
    pub min_compression_rate: f64,
    /// Whether what compression loses is added to the next step's gradients.
    pub use_error_feedback: bool,
    /// Whether a step starts from the thin matrices of the step before.
    pub warm_start: bool,
    /// Added to the length of each column before it is divided by it.
    pub orthogonalization_epsilon: f64,
    /// The seed of the random first matrices, the same on every rank.
    pub random_seed: u32,
    /// After how many steps the log says again how much is saved.
    pub compression_stats_logging_frequency: NonZeroU64,
    /// Whether gradients of one shape in one bucket are computed together.
    pub batch_tensors_with_same_shape: bool,
}

impl Default for PowerSgdOptions {
    fn default() -> Self {
        Self {
            matrix_approximation_rank: NonZeroU64::MIN,
            start_power_sgd_iter: 1000,
            min_compression_rate: 2.0,
            use_error_feedback: true,
            warm_start: true,
            orthogonalization_epsilon: 0.0,
            random_seed: 0,
            compression_stats_logging_frequency: NonZeroU64::MIN.saturating_add(9_999),
            batch_tensors_with_same_shape: false,
        }
    }
}

impl PowerSgdOptions {
    /// Checks that what is remembered between steps can be.
    ///
    /// # Errors
    /// [`Error::Argument`] for error feedback or warm start before step 2: buckets change
    /// once, after the first step, and what was remembered would not fit. Also for numbers
    /// that are negative or not finite.
    pub fn validate(&self) -> Result<()> {
        if (self.use_error_feedback || self.warm_start) && self.start_power_sgd_iter <= 1 {
            return Err(refused(
                "`start_power_sgd_iter` above 1 with `use_error_feedback` or `warm_start`, \
                 because buckets change after the first step",
                self.start_power_sgd_iter.to_string(),
            ));
        }
        for (name, value) in [
            ("`min_compression_rate`", self.min_compression_rate),
            (
                "`orthogonalization_epsilon`",
                self.orthogonalization_epsilon,
            ),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(refused(&format!("{name} of 0 or more"), value.to_string()));
            }
        }
        Ok(())
    }
}

fn refused(expected: &str, found: String) -> Error {
    Error::Argument {
        operation: "PowerSGD",
        expected: expected.to_owned(),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_original() {
        let options = PowerSgdOptions::default();
        assert_eq!(options.matrix_approximation_rank.get(), 1);
        assert_eq!(options.start_power_sgd_iter, 1000);
        assert!((options.min_compression_rate - 2.0).abs() < f64::EPSILON);
        assert!(options.use_error_feedback && options.warm_start);
        assert!(options.orthogonalization_epsilon.abs() < f64::EPSILON);
        assert_eq!(options.random_seed, 0);
        assert_eq!(options.compression_stats_logging_frequency.get(), 10_000);
        assert!(!options.batch_tensors_with_same_shape);
        assert!(options.validate().is_ok());
    }

    #[test]
    fn what_is_remembered_cannot_begin_before_buckets_are_final() {
        let early = |use_error_feedback, warm_start, start_power_sgd_iter| PowerSgdOptions {
            use_error_feedback,
            warm_start,
            start_power_sgd_iter,
            ..PowerSgdOptions::default()
        };
        for (feedback, warm) in [(true, true), (true, false), (false, true)] {
            let error = early(feedback, warm, 1).validate().unwrap_err().to_string();
            assert!(error.contains("`start_power_sgd_iter` above 1"), "{error}");
            assert!(early(feedback, warm, 2).validate().is_ok());
        }
        assert!(early(false, false, 0).validate().is_ok());
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let options = PowerSgdOptions {
            orthogonalization_epsilon: f64::NAN,
            ..PowerSgdOptions::default()
        };
        assert!(options.validate().is_err());
    }
}
