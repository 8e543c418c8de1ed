//! Reading, setting, saving and loading what a scaler has come to.

use std::num::NonZeroU32;

use super::deepspeed_scale::DeepSpeedScale;
use super::grad_scaler::GradScaler;
use super::scaler_kwargs::GradScalerKwargs;
use crate::optim::{StateDict, StateValue};
use crate::{Error, Result};

impl GradScaler {
    /// What the loss is multiplied by now; waits for the device. 1 where nothing is scaled.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn scale_value(&self) -> Result<f64> {
        let shared = self.shared.borrow();
        match &shared.tensors {
            _ if !shared.kwargs.enabled => Ok(1.0),
            Some(tensors) => Ok(tensors.scale.f_double_value(&[])?),
            None => Ok(shared.kwargs.init_scale),
        }
    }

    /// How many good steps there were since the scale last changed; waits for the device.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn growth_tracker(&self) -> Result<i64> {
        let shared = self.shared.borrow();
        match &shared.tensors {
            Some(tensors) => Ok(tensors.tracker.f_int64_value(&[])?),
            None => Ok(shared.init_tracker),
        }
    }

    /// The settings as they are now.
    #[must_use]
    pub fn kwargs(&self) -> GradScalerKwargs {
        self.shared.borrow().kwargs
    }

    /// Changes how the scale grows and falls. The scale itself and whether there is one stay.
    ///
    /// # Errors
    /// Settings out of their range.
    pub fn set_growth(
        &self,
        growth_factor: f64,
        backoff_factor: f64,
        growth_interval: NonZeroU32,
    ) -> Result<()> {
        let mut shared = self.shared.borrow_mut();
        let kwargs = GradScalerKwargs {
            growth_factor,
            backoff_factor,
            growth_interval,
            ..shared.kwargs
        };
        kwargs.check()?;
        shared.kwargs = kwargs;
        Ok(())
    }

    /// Everything that has to be saved, under PyTorch's names; empty where nothing is scaled.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut state = StateDict::new();
        let kwargs = self.kwargs();
        if kwargs.enabled {
            let interval = i64::from(kwargs.growth_interval.get());
            state.push("scale", StateValue::Float(self.scale_value()?));
            state.push("growth_factor", StateValue::Float(kwargs.growth_factor));
            state.push("backoff_factor", StateValue::Float(kwargs.backoff_factor));
            state.push("growth_interval", StateValue::Int(interval));
            state.push("_growth_tracker", StateValue::Int(self.growth_tracker()?));
            if let Some(rule) = &self.shared.borrow().deepspeed {
                rule.save(&mut state);
            }
        }
        Ok(state)
    }

    /// Goes on from `state`; does nothing where nothing is scaled. On an error nothing has changed.
    /// A scale that a plan fixes stays; one of DeepSpeed's rule goes on from any scaler's.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] with everything that does not fit.
    pub fn load_state_dict(&self, state: &StateDict) -> Result<()> {
        let mut kwargs = self.kwargs();
        if !kwargs.enabled {
            return Ok(());
        }
        let mut problems = Vec::new();
        let mut float = |name: &str| match state.get(name) {
            Some(StateValue::Float(number)) => Some(*number),
            other => {
                problems.push(format!("`{name}`: expected a number, found {other:?}"));
                None
            }
        };
        let saved = float("scale").unwrap_or(kwargs.init_scale);
        let is_fixed = self.shared.borrow().deepspeed == Some(DeepSpeedScale::Fixed);
        kwargs.init_scale = if is_fixed { kwargs.init_scale } else { saved };
        kwargs.growth_factor = float("growth_factor").unwrap_or(kwargs.growth_factor);
        kwargs.backoff_factor = float("backoff_factor").unwrap_or(kwargs.backoff_factor);
        let count = |name: &str| match state.get(name) {
            Some(StateValue::Int(count)) => u32::try_from(*count).ok(),
            _ => None,
        };
        match count("growth_interval").and_then(NonZeroU32::new) {
            Some(interval) => kwargs.growth_interval = interval,
            None => problems.push("`growth_interval`: expected a count above 0".to_owned()),
        }
        let tracker = count("_growth_tracker");
        if tracker.is_none() {
            problems.push("`_growth_tracker`: expected a count".to_owned());
        }
        if let Err(error) = kwargs.check() {
            problems.push(error.to_string());
        }
        if !problems.is_empty() {
            return Err(Error::StateMismatch {
                target: "gradient scaler",
                problems,
            });
        }
        let mut shared = self.shared.borrow_mut();
        let device = shared.tensors.as_ref().map(|there| there.scale.device());
        shared.kwargs = kwargs;
        shared.deepspeed = shared.deepspeed.map(|rule| rule.at(state));
        shared.init_tracker = i64::from(tracker.unwrap_or(0));
        shared.tensors = None;
        if let Some(device) = device {
            let _ = shared.tensors_on(device)?;
        }
        Ok(())
    }
}
