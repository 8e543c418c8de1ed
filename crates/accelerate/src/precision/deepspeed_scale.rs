//! DeepSpeed's rules for the scale of the loss.

use accelerate_plan::parallel::ScaleRule;

use crate::optim::{StateDict, StateValue};
use crate::{Error, Result};

/// How a scale moves on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum DeepSpeedScale {
    /// Not at all: a step whose gradients overflow is left out.
    Fixed,
    /// It follows from the steps.
    Dynamic(DynamicScale),
}

/// A scale that halves where gradients overflow, and doubles after many good steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DynamicScale {
    rule: ScaleRule,
    /// Steps so far, those that were left out too.
    steps: i64,
    /// The step of the last overflow; -1 where there was none.
    last_overflow: i64,
    /// Overflows that are borne until the scale halves, and that one.
    hysteresis: u64,
}

/// The names of what moves, which are DeepSpeed's.
const STEPS: &str = "cur_iter";
const LAST_OVERFLOW: &str = "last_overflow_iter";
const HYSTERESIS: &str = "cur_hysteresis";

impl DynamicScale {
    pub(super) fn new(rule: ScaleRule) -> Self {
        Self {
            rule,
            steps: 0,
            last_overflow: -1,
            hysteresis: rule.hysteresis,
        }
    }

    /// The scale behind a step that had this one.
    ///
    /// # Errors
    /// [`Error::Argument`] for an overflow where the scale cannot become less.
    ///
    /// # Source
    /// `DynamicLossScaler.update_scale`.
    fn next(&mut self, scale: f64, is_overflow: bool) -> Result<f64> {
        let next = match is_overflow {
            true => self.behind_overflow(scale)?,
            false => self.behind_good_step(scale),
        };
        self.steps += 1;
        Ok(next)
    }

    fn behind_overflow(&mut self, scale: f64) -> Result<f64> {
        self.last_overflow = self.steps;
        if self.hysteresis > 1 {
            self.hysteresis -= 1;
            return Ok(scale);
        }
        if scale <= self.rule.min_scale {
            return Err(Error::Argument {
                operation: "loss scaling",
                expected:
                    "gradients that are finite at the least scale of the loss; train in bf16, \
                           with a lower learning rate, or with a lower `fp16.min_loss_scale`"
                        .to_owned(),
                found: format!("an overflow at the least one, {scale}"),
            });
        }
        Ok((scale / 2.0).max(self.rule.min_scale))
    }

    fn behind_good_step(&mut self, scale: f64) -> f64 {
        let good = self.steps - self.last_overflow - 1;
        let window = i64::try_from(self.rule.window).unwrap_or(i64::MAX);
        let grows = good > 0 && good.checked_rem(window) == Some(0);
        if grows || self.rule.consecutive_hysteresis {
            self.hysteresis = self.rule.hysteresis;
        }
        if grows { 2.0 * scale } else { scale }
    }
}

impl DeepSpeedScale {
    /// The scale behind a step that had this one.
    ///
    /// # Errors
    /// [`Error::Argument`] for an overflow where the scale cannot become less.
    pub(super) fn next(&mut self, scale: f64, is_overflow: bool) -> Result<f64> {
        match self {
            Self::Fixed => Ok(scale),
            Self::Dynamic(dynamic) => dynamic.next(scale, is_overflow),
        }
    }

    /// What has to be saved besides the scale.
    pub(super) fn save(&self, state: &mut StateDict) {
        if let Self::Dynamic(dynamic) = self {
            let hysteresis = i64::try_from(dynamic.hysteresis).unwrap_or(i64::MAX);
            state.push(STEPS, StateValue::Int(dynamic.steps));
            state.push(LAST_OVERFLOW, StateValue::Int(dynamic.last_overflow));
            state.push(HYSTERESIS, StateValue::Int(hysteresis));
        }
    }

    /// The same rule where a saved one stood. One that was saved by another rule has only a scale: then
    /// the count begins anew.
    pub(super) fn at(self, state: &StateDict) -> Self {
        let Self::Dynamic(dynamic) = self else {
            return self;
        };
        let count = |name: &str| match state.get(name) {
            Some(StateValue::Int(count)) => Some(*count),
            _ => None,
        };
        let fresh = DynamicScale::new(dynamic.rule);
        let hysteresis = count(HYSTERESIS).and_then(|count| u64::try_from(count).ok());
        Self::Dynamic(DynamicScale {
            steps: count(STEPS).unwrap_or(fresh.steps),
            last_overflow: count(LAST_OVERFLOW).unwrap_or(fresh.last_overflow),
            hysteresis: hysteresis.unwrap_or(fresh.hysteresis),
            ..fresh
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales(rule: ScaleRule, overflows: &[bool]) -> Vec<f64> {
        let mut dynamic = DynamicScale::new(rule);
        let mut scale = 64.0;
        let steps = overflows.iter().map(|&overflow| {
            scale = dynamic.next(scale, overflow).unwrap();
            scale
        });
        steps.collect()
    }

    #[test]
    fn a_scale_bears_overflows_falls_and_grows() {
        let rule = ScaleRule {
            window: 2,
            hysteresis: 2,
            ..ScaleRule::default()
        };
        let (bad, good) = (true, false);
        // Two good steps behind the first one, then two more; each growth forgives an overflow.
        assert_eq!(
            scales(rule, &[good, good, good, good, good, bad, bad, bad]),
            [64.0, 64.0, 128.0, 128.0, 256.0, 256.0, 128.0, 64.0]
        );
        assert_eq!(
            scales(rule, &[bad, good, bad, good, good, good, bad]),
            [64.0, 64.0, 32.0, 32.0, 32.0, 64.0, 64.0]
        );
        let forgiving = ScaleRule {
            consecutive_hysteresis: true,
            ..rule
        };
        assert_eq!(scales(forgiving, &[bad, good, bad]), [64.0, 64.0, 64.0]);
    }

    #[test]
    fn at_its_least_an_overflow_ends_it() {
        let rule = ScaleRule {
            hysteresis: 1,
            min_scale: 48.0,
            ..ScaleRule::default()
        };
        let mut dynamic = DynamicScale::new(rule);
        assert_eq!(dynamic.next(64.0, true).unwrap(), 48.0);
        assert_eq!(dynamic.next(48.0, false).unwrap(), 48.0);
        let text = dynamic.next(48.0, true).unwrap_err().to_string();
        assert!(text.contains("at the least one, 48"), "{text}");
    }

    #[test]
    fn what_was_saved_goes_on_as_it_would_have() {
        let rule = ScaleRule {
            window: 2,
            ..ScaleRule::default()
        };
        let mut one = DeepSpeedScale::Dynamic(DynamicScale::new(rule));
        for overflow in [false, true, false, false] {
            one.next(64.0, overflow).unwrap();
        }
        let mut state = StateDict::new();
        one.save(&mut state);
        let mut other = DeepSpeedScale::Dynamic(DynamicScale::new(rule)).at(&state);
        assert_eq!(one, other);
        assert_eq!(other.next(64.0, false).unwrap(), 128.0);
        let fresh = DeepSpeedScale::Dynamic(DynamicScale::new(rule));
        assert_eq!(one.at(&StateDict::new()), fresh);
    }
}
