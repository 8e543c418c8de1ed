//! A step, or several, as they were measured.

use accelerate_tracking::run::{StepMetrics, TimeSplit};
use accelerate_tracking::{Value, Values};

/// A step behind the first few counts for so much in the moving average, at least.
const WEIGHT: f64 = 0.1;

/// The last step of a rank, and what steps are like on average.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The last step.
    pub last: StepMetrics,
    /// The moving average, in which the last ten steps or so count; with the last step's number,
    /// memory, norm and loss scale.
    pub average: StepMetrics,
}

impl StepReport {
    /// The averages by name.
    pub(crate) fn values(&self) -> Values {
        let average = &self.average;
        let (split, mut values) = (&average.split, Values::new());
        let mut insert = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                values.insert(format!("perf/{name}"), value);
            }
        };
        insert("step_seconds", Some(average.seconds.into()));
        insert("data_wait", Some(split.data_wait.into()));
        insert("compute", Some(split.compute.into()));
        insert("communication", Some(split.communication.into()));
        insert("other", Some(split.other.into()));
        let number = |number: Option<f64>| number.map(Value::from);
        insert("samples_per_second", number(average.samples_per_second));
        insert("tokens_per_second", number(average.tokens_per_second));
        insert("gradient_norm", number(average.gradient_norm));
        insert("loss_scale", number(average.loss_scale));
        insert("memory_bytes", average.memory_bytes.map(Value::from));
        insert(
            "peak_memory_bytes",
            average.peak_memory_bytes.map(Value::from),
        );
        values
    }
}

/// The sums of some steps, or the means.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Measured {
    /// The number of the last of them, from 1.
    pub(super) step: i64,
    pub(super) seconds: f64,
    pub(super) split: TimeSplit,
    pub(super) samples: f64,
    pub(super) tokens: f64,
    /// The norm of the gradients of the last of them, where it is known at once.
    pub(super) gradient_norm: Option<f64>,
}

impl Measured {
    /// `own` parts of this and `others` of another, which is newer.
    fn mixed(&self, own: f64, newer: &Self, others: f64) -> Self {
        let mix = |old: f64, new: f64| own * old + others * new;
        let (old, new) = (&self.split, &newer.split);
        Self {
            step: newer.step,
            seconds: mix(self.seconds, newer.seconds),
            split: TimeSplit {
                data_wait: mix(old.data_wait, new.data_wait),
                compute: mix(old.compute, new.compute),
                communication: mix(old.communication, new.communication),
                other: mix(old.other, new.other),
            },
            samples: mix(self.samples, newer.samples),
            tokens: mix(self.tokens, newer.tokens),
            gradient_norm: newer.gradient_norm,
        }
    }

    /// The sums of this and a newer one.
    pub(super) fn plus(&self, newer: &Self) -> Self {
        self.mixed(1.0, newer, 1.0)
    }

    /// The mean of `count` steps of which these are the sums.
    pub(super) fn over(&self, count: u32) -> Self {
        self.mixed(0.0, self, 1.0 / f64::from(count.max(1)))
    }

    /// This average of steps moved on by the step with this number, from 1.
    pub(super) fn moved_on(&self, newer: &Self, number: i64) -> Self {
        let weight = (1.0 / number.max(1) as f64).max(WEIGHT);
        self.mixed(1.0 - weight, newer, weight)
    }

    /// As it is written down, without what is not of the time.
    pub(super) fn metrics(&self) -> StepMetrics {
        let rate = |count: f64| (count > 0.0 && self.seconds > 0.0).then(|| count / self.seconds);
        StepMetrics {
            step: self.step,
            seconds: self.seconds,
            split: self.split,
            samples_per_second: rate(self.samples),
            tokens_per_second: rate(self.tokens),
            gradient_norm: self.gradient_norm,
            ..StepMetrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: i64, seconds: f64, samples: f64) -> Measured {
        Measured {
            step: number,
            seconds,
            samples,
            split: TimeSplit {
                compute: seconds,
                ..TimeSplit::default()
            },
            gradient_norm: Some(seconds),
            ..Measured::default()
        }
    }

    #[test]
    fn rates_of_several_steps_are_those_of_all_of_them_together() {
        let sums = Measured::default()
            .plus(&step(1, 1.0, 8.0))
            .plus(&step(2, 3.0, 8.0));
        let mean = sums.over(2).metrics();
        assert_eq!((mean.step, mean.seconds, mean.split.compute), (2, 2.0, 2.0));
        assert_eq!(mean.samples_per_second, Some(4.0));
        assert_eq!(
            (mean.tokens_per_second, mean.gradient_norm),
            (None, Some(3.0))
        );
    }

    #[test]
    fn an_average_is_a_plain_one_at_first_and_moves_then() {
        let mut average = Measured::default();
        for number in 1..=4 {
            average = average.moved_on(&step(number, number as f64, 0.0), number);
        }
        assert!((average.seconds - 2.5).abs() < 1e-12, "{average:?}");
        let later = average.moved_on(&step(50, 12.5, 0.0), 50);
        assert!((later.seconds - 3.5).abs() < 1e-12, "{later:?}");
    }

    #[test]
    fn what_was_not_measured_has_no_name_in_a_log() {
        let last = step(7, 0.5, 2.0).metrics();
        let report = StepReport {
            average: last.clone(),
            last,
        };
        let values = report.values();
        let number = |name: &str| values.get(name).and_then(Value::as_number);
        assert_eq!(number("perf/samples_per_second"), Some(4.0));
        assert_eq!(number("perf/compute"), Some(0.5));
        assert_eq!(number("perf/tokens_per_second"), None);
        assert_eq!(number("perf/loss_scale"), None);
    }
}
