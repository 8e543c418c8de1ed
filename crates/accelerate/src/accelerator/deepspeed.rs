use accelerate_plan::parallel::DeepSpeedConfig;

use super::Accelerator;
use crate::optim::{DummyOptim, DummyScheduler, Optimizer, Scheduler};
use crate::parallel::{DeepSpeed, Manner, Plugins, Together};
use crate::{Error, Result};

impl Accelerator {
    /// The config of DeepSpeed, where the job is told in its words. A program asks it whether to make
    /// an optimizer and a schedule, or [stand-ins](DummyOptim) for those that the config names.
    ///
    /// Once a model is prepared with its loaders, nothing of it is `auto` any more. Of several it is the
    /// [selected](Self::select_deepspeed_plugin) one.
    ///
    /// # Source
    /// `accelerator.deepspeed_plugin.deepspeed_config`.
    #[must_use]
    pub fn deepspeed_config(&self) -> Option<&DeepSpeedConfig> {
        self.deepspeed().map(DeepSpeed::config)
    }

    /// The names of DeepSpeed's configs, in the order in which they were given; none in a job without
    /// DeepSpeed. A single one is called `default`.
    pub fn deepspeed_plugins(&self) -> impl Iterator<Item = &str> {
        let plugins = self.shared.deepspeed.as_ref();
        plugins.into_iter().flat_map(Plugins::names)
    }

    /// The config of DeepSpeed with a name, selected or not.
    ///
    /// # Errors
    /// [`Error::Sharding`] with all names, if it is none of them; [`Error::Argument`] in a job without
    /// DeepSpeed.
    ///
    /// # Source
    /// `AcceleratorState.get_deepspeed_plugin`.
    pub fn get_deepspeed_plugin(&self, name: &str) -> Result<&DeepSpeedConfig> {
        let plugins = self.plugins("get_deepspeed_plugin")?;
        let config = plugins.get(name)?.map(DeepSpeed::config);
        config.ok_or_else(|| no_plugins("get_deepspeed_plugin"))
    }

    /// Prepares by another of the configs that the accelerator was made with from now on. What was
    /// prepared before stays as it is.
    ///
    /// # Collective
    /// Every rank calls this with the same name.
    ///
    /// # Errors
    /// [`Error::Sharding`] with all names, if it is none of them; [`Error::Argument`] in a job without
    /// DeepSpeed.
    ///
    /// # Source
    /// `AcceleratorState.select_deepspeed_plugin`. Differs: two models that are trained by different
    /// configs may share an accelerator; they share the count of accumulated batches, which is that of
    /// the config that was selected last.
    pub fn select_deepspeed_plugin(&self, name: &str) -> Result<()> {
        self.plugins("select_deepspeed_plugin")?.select(name)?;
        if let Some(steps) = self.deepspeed().and_then(DeepSpeed::steps) {
            self.gradient_state().set_num_steps(steps);
        }
        Ok(())
    }

    fn plugins(&self, operation: &'static str) -> Result<&Plugins> {
        let plugins = self.shared.deepspeed.as_ref();
        plugins.ok_or_else(|| no_plugins(operation))
    }

    /// The selected config, and what became of it.
    fn deepspeed(&self) -> Option<&DeepSpeed> {
        self.shared.deepspeed.as_ref()?.selected()
    }

    /// Finds out what DeepSpeed's config means for things, before they are prepared.
    pub(super) fn settle(&self, together: Together) -> Result<()> {
        let Some(deepspeed) = self.deepspeed() else {
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
        match self.deepspeed() {
            Some(deepspeed) => deepspeed.optimizer_for(dummy),
            None => Err(no_deepspeed("DummyOptim", "an optimizer")),
        }
    }

    /// The schedule that takes a stand-in's place.
    pub(super) fn schedule_for(&self, dummy: &DummyScheduler) -> Result<Box<dyn Scheduler>> {
        let optimizers = self.shared.registry.optimizers.alive();
        match self.deepspeed() {
            Some(deepspeed) => deepspeed.schedule_for(dummy, &optimizers),
            None => Err(no_deepspeed("DummyScheduler", "a schedule")),
        }
    }
}

fn no_plugins(operation: &'static str) -> Error {
    Error::Argument {
        operation,
        expected: "a job with DeepSpeed".to_owned(),
        found:
            "a job without it; give `deepspeed` or `deepspeed_plugins` to the builder, or launch \
                with `--use_deepspeed`"
                .to_owned(),
    }
}

fn no_deepspeed(operation: &'static str, what: &str) -> Error {
    Error::Argument {
        operation,
        expected: format!("a job with DeepSpeed, whose config names {what}"),
        found: format!("a job without it; make {what} of your own"),
    }
}
