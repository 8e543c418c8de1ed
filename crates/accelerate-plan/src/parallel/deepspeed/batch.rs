//! The equation of batch sizes.

use std::{fmt, num::NonZeroUsize};

use crate::{parallel::PlanError, settings::Origin};

/// One term of the equation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchTerm {
    /// Its value, at least 1.
    pub value: u64,
    /// Where it came from.
    pub origin: Origin,
}

/// `train_batch_size` = `train_micro_batch_size_per_gpu` x `gradient_accumulation_steps` x ranks.
///
/// Shown with every term and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSizes {
    /// Samples of one step of the optimizer.
    pub train: BatchTerm,
    /// Samples of one batch of one rank.
    pub micro: BatchTerm,
    /// Batches over which gradients are added up.
    pub accumulation: BatchTerm,
    /// Ranks that each read other samples.
    pub ranks: NonZeroUsize,
}

impl BatchSizes {
    /// Finds the terms that are missing, and checks the equation. Any two terms give the third; with
    /// only one of the two sizes the accumulation is 1.
    ///
    /// # Errors
    /// [`PlanError::BatchSizes`] with all terms if the equation does not hold,
    /// [`PlanError::NoBatchSize`] if no size is given.
    pub fn solve(
        train: Option<BatchTerm>,
        micro: Option<BatchTerm>,
        accumulation: Option<BatchTerm>,
        ranks: NonZeroUsize,
    ) -> Result<Self, PlanError> {
        let n = ranks.get() as u64;
        let one = || found(1, "nothing else says it");
        let sizes = match (train, micro, accumulation) {
            (Some(train), Some(micro), accumulation) => {
                let steps = || train.value / micro.value.saturating_mul(n).max(1);
                let steps = accumulation.unwrap_or_else(|| found(steps(), "from the batch sizes"));
                (train, micro, steps)
            }
            (Some(train), None, accumulation) => {
                let steps = accumulation.unwrap_or_else(one);
                let each = train.value / steps.value.saturating_mul(n).max(1);
                (train, found(each, "from `train_batch_size`"), steps)
            }
            (None, Some(micro), accumulation) => {
                let steps = accumulation.unwrap_or_else(one);
                let all = micro.value.saturating_mul(steps.value).saturating_mul(n);
                let from = "from `train_micro_batch_size_per_gpu`";
                (found(all, from), micro, steps)
            }
            (None, None, _) => {
                return Err(PlanError::NoBatchSize {
                    why: "neither a loader nor the config says one",
                });
            }
        };
        let (train, micro, accumulation) = sizes;
        let sizes = Self {
            train,
            micro,
            accumulation,
            ranks,
        };
        match sizes.holds() {
            true => Ok(sizes),
            false => Err(PlanError::BatchSizes(Box::new(sizes))),
        }
    }

    /// Whether the two sides are equal, and no term is 0.
    pub fn holds(&self) -> bool {
        self.train.value == self.product() && self.train.value > 0
    }

    fn product(&self) -> u64 {
        let each = self.micro.value.saturating_mul(self.accumulation.value);
        each.saturating_mul(self.ranks.get() as u64)
    }
}

fn found(value: u64, how: &str) -> BatchTerm {
    BatchTerm {
        value,
        origin: Origin::Detected(how.to_owned()),
    }
}

impl fmt::Display for BatchSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (train, micro, steps) = (&self.train, &self.micro, &self.accumulation);
        let ranks = self.ranks;
        let right = format!(
            "`train_micro_batch_size_per_gpu` ({}, {}) x `gradient_accumulation_steps` ({}, {}) x \
             {ranks} ranks",
            micro.value, micro.origin, steps.value, steps.origin
        );
        let left = format!("`train_batch_size` ({}, {})", train.value, train.origin);
        match self.holds() {
            true => write!(f, "{left} = {right}"),
            false => write!(
                f,
                "expected {left} to be {right} = {}",
                self.product()
            ),
        }
    }
}
