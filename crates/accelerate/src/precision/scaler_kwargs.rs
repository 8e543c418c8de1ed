use std::num::NonZeroU32;

use crate::{Error, Result};

/// How the loss is scaled while training in float16.
///
/// # Source
/// `accelerate.GradScalerKwargs`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradScalerKwargs {
    /// What the loss is multiplied by in the beginning.
    pub init_scale: f64,
    /// What the scale is multiplied by after [`growth_interval`](Self::growth_interval) good
    /// steps; above 1.
    pub growth_factor: f64,
    /// What the scale is multiplied by after a step with gradients that are not finite; below 1.
    pub backoff_factor: f64,
    /// After how many good steps on end the scale grows.
    pub growth_interval: NonZeroU32,
    /// Whether anything is scaled at all.
    pub enabled: bool,
}

impl Default for GradScalerKwargs {
    fn default() -> Self {
        Self {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: NonZeroU32::MIN.saturating_add(1999),
            enabled: true,
        }
    }
}

impl GradScalerKwargs {
    /// # Errors
    /// A value out of its range.
    pub(super) fn check(&self) -> Result<()> {
        let finite_above = |number: f64, low: f64| number.is_finite() && number > low;
        let problem = if !finite_above(self.init_scale, 0.0) {
            ("an `init_scale` above 0", self.init_scale)
        } else if !finite_above(self.growth_factor, 1.0) {
            ("a `growth_factor` above 1", self.growth_factor)
        } else if !(self.backoff_factor > 0.0 && self.backoff_factor < 1.0) {
            ("a `backoff_factor` between 0 and 1", self.backoff_factor)
        } else {
            return Ok(());
        };
        Err(Error::Argument {
            operation: "gradient scaler",
            expected: problem.0.to_owned(),
            found: problem.1.to_string(),
        })
    }
}
