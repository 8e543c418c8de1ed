/// How the rate begins, and how much each point counts in the average.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weighing {
    pub(super) warmup_steps: u64,
    pub(super) r: f64,
    pub(super) weight_lr_power: f64,
}

/// Where one group stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Progress {
    /// The number of steps.
    pub(super) k: u64,
    /// The sum of the weights of all points.
    pub(super) weight_sum: f64,
    /// The largest rate of a step.
    pub(super) lr_max: f64,
    /// The rate of the last step.
    pub(super) scheduled_lr: f64,
    /// The share of the last point in the average.
    pub(super) share: f64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            k: 0,
            weight_sum: 0.0,
            lr_max: -1.0,
            scheduled_lr: 0.0,
            share: 0.0,
        }
    }
}

impl Progress {
    /// Counts a step whose rate is `lr` after the warm-up.
    pub(super) fn advance(&mut self, lr: f64, weighing: Weighing) {
        self.k += 1;
        let step = self.k as f64;
        let warm = (step / weighing.warmup_steps as f64).min(1.0);
        self.scheduled_lr = lr * warm;
        self.lr_max = self.lr_max.max(self.scheduled_lr);
        let weight = step.powf(weighing.r) * self.lr_max.powf(weighing.weight_lr_power);
        self.weight_sum += weight;
        // A rate of 0 moves nothing and counts for nothing.
        self.share = match self.weight_sum {
            0.0 => 0.0,
            sum => weight / sum,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Weighing = Weighing {
        warmup_steps: 0,
        r: 0.0,
        weight_lr_power: 2.0,
    };

    fn shares(weighing: Weighing, rates: &[f64]) -> Vec<f64> {
        let mut progress = Progress::default();
        let steps = rates.iter().map(|&lr| {
            progress.advance(lr, weighing);
            progress.share
        });
        steps.collect()
    }

    #[test]
    fn at_one_rate_every_point_counts_the_same() {
        assert_eq!(shares(PLAIN, &[0.5; 4]), [1.0, 0.5, 1.0 / 3.0, 0.25]);
        let later = Weighing { r: 1.0, ..PLAIN };
        assert_eq!(shares(later, &[0.5; 3]), [1.0, 2.0 / 3.0, 0.5]);
    }

    #[test]
    fn a_rate_of_zero_counts_for_nothing() {
        assert_eq!(shares(PLAIN, &[0.0, 0.0, 1.0, 1.0]), [0.0, 0.0, 1.0, 0.5]);
    }

    #[test]
    fn the_rate_rises_in_equal_steps() {
        let weighing = Weighing {
            warmup_steps: 4,
            ..PLAIN
        };
        let mut progress = Progress::default();
        let rates: Vec<f64> = (0..6)
            .map(|_| {
                progress.advance(2.0, weighing);
                progress.scheduled_lr
            })
            .collect();
        assert_eq!(rates, [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]);
        // Weights 0.25, 1, 2.25, 4, 4, 4.
        assert_eq!(progress.share, 4.0 / 15.5);
    }
}
