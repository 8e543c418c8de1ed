//! A signal that one rank gives and all ranks see, as for stopping early together.

use accelerate_torch::ReduceOp;
use tch::Tensor;

use super::Accelerator;
use crate::Result;
use crate::collectives::{Operation, Watch};

impl Accelerator {
    /// Sets the trigger: the next [`check_trigger`](Self::check_trigger) is true on every rank.
    ///
    /// ```
    /// # let accelerator = accelerate::Accelerator::new()?;
    /// for step in 0..100 {
    ///     let loss_is_good_enough = step == 3;
    ///     if loss_is_good_enough {
    ///         accelerator.set_trigger();
    ///     }
    ///     // Every rank leaves the loop at the same step, whoever found it good enough.
    ///     if accelerator.check_trigger()? {
    ///         break;
    ///     }
    /// #   assert!(step < 3);
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Source
    /// `Accelerator.set_trigger`.
    pub fn set_trigger(&self) {
        self.shared.trigger.set(true);
    }

    /// Whether any rank has set the trigger since the last time this was true.
    ///
    /// Costs one reduction of one number, so it can be asked at every step.
    ///
    /// # Collective
    /// Every rank calls this, at the same step.
    ///
    /// # Errors
    /// [`Error::CollectiveIncomplete`](crate::Error::CollectiveIncomplete) names ranks that have
    /// ended, and those that do not come.
    ///
    /// # Source
    /// `Accelerator.check_trigger`.
    #[track_caller]
    pub fn check_trigger(&self) -> Result<bool> {
        let own = self.shared.trigger.get();
        let state = self.state();
        let set = match Watch::begin(state, &Operation::new("check_trigger"))? {
            None => own,
            Some(watch) => {
                let flag = Tensor::from_slice(&[i64::from(own)]).f_to_device(watch.device())?;
                watch.run(|group| Ok(group.all_reduce(&flag, ReduceOp::Sum)?))?;
                flag.f_int64_value(&[0])? >= 1
            }
        };
        if set {
            self.shared.trigger.set(false);
        }
        Ok(set)
    }

    /// Another name of [`set_trigger`](Self::set_trigger).
    pub fn set_breakpoint(&self) {
        self.set_trigger();
    }

    /// Another name of [`check_trigger`](Self::check_trigger).
    ///
    /// # Errors
    /// As [`check_trigger`](Self::check_trigger).
    #[track_caller]
    pub fn check_breakpoint(&self) -> Result<bool> {
        self.check_trigger()
    }
}
