use accelerate_plan::parallel::DeepSpeedConfig;

use super::Accelerator;
use crate::optim::{DummyOptim, DummyScheduler, Optimizer, Scheduler};
use crate::parallel::{Manner, Together};
use crate::{Error, Result};

impl Accelerator {
    /// The config of DeepSpeed, where the job is told in its words. A program asks it whether to make
    /// an optimizer and a schedule, or [stand-ins](DummyOptim) for those that the config names.
    ///
    /// Once a model is prepared with its loaders, nothing of it is `auto` any more.
    ///
    /// # Source
    /// `accelerator.deepspeed_plugin.deepspeed_config`.
    #[must_use]
    pub fn deepspeed_config(&self) -> Option<&DeepSpeedConfig> {
        let deepspeed = self.shared.deepspeed.as_ref();
        deepspeed.map(|deepspeed| deepspeed.config())
    }

    /// Finds out what DeepSpeed's config means for things, before they are prepared.
    pub(super) fn settle(&self, together: Together) -> Result<()> {
        let Some(deepspeed) = &self.shared.deepspeed else {
            return Ok(());
        };
        let manner = Manner {
            accumulation: self.gradient_state().num_steps(),
            split_batches: self.shared.dataloader_config.split_batches,
        };
        if let Some(steps) = deepspeed.settle(together, manner)? {
            self.gradient_state().set_num_steps(steps);
        }
        Ok(())
    }

    /// The optimizer that takes a stand-in's place.
    pub(super) fn optimizer_for(&self, dummy: &DummyOptim) -> Result<Box<dyn Optimizer>> {
        match &self.shared.deepspeed {
            Some(deepspeed) => deepspeed.optimizer_for(dummy),
            None => Err(no_deepspeed("DummyOptim", "an optimizer")),
        }
    }

    /// The schedule that takes a stand-in's place.
    pub(super) fn schedule_for(&self, dummy: &DummyScheduler) -> Result<Box<dyn Scheduler>> {
        let optimizers = self.shared.registry.optimizers.alive();
        match &self.shared.deepspeed {
            Some(deepspeed) => deepspeed.schedule_for(dummy, &optimizers),
            None => Err(no_deepspeed("DummyScheduler", "a schedule")),
        }
    }
}

fn no_deepspeed(operation: &'static str, what: &str) -> Error {
    Error::Argument {
        operation,
        expected: format!("a job with DeepSpeed, whose config names {what}"),
        found: format!("a job without it; make {what} of your own"),
    }
}
