use std::num::NonZeroUsize;

use accelerate_plan::parallel::{GivenOptimizer, GivenScheduler, PrepareFacts};

use crate::nn::Module;
use crate::optim::{DummyScheduler, Optimizer, Scheduler};

/// What is prepared together. DeepSpeed's `auto` values come from it, and it shows whether optimizer
/// and schedule are the program's or stand for the config's.
#[derive(Debug, Clone, Default)]
pub struct Together {
    pub(super) facts: PrepareFacts,
    pub(super) has_model: bool,
    /// Each optimizer and schedule; the facts have the last of them.
    optimizers: Vec<GivenOptimizer>,
    schedulers: Vec<GivenScheduler>,
}

impl Together {
    /// Notes a model.
    pub(crate) fn model(&mut self, model: &dyn Module) {
        self.has_model = true;
        self.facts.hidden_sizes.extend(model.hidden_sizes());
    }

    /// Notes a loader with batches of so many samples, if that is fixed.
    pub(crate) fn loader(&mut self, batch_size: Option<NonZeroUsize>) {
        self.facts.batch_sizes.push(batch_size);
    }

    /// Notes an optimizer.
    pub(crate) fn optimizer<O: Optimizer + ?Sized>(&mut self, optimizer: &O) {
        self.facts.optimizer = given_optimizer(optimizer);
        self.optimizers.push(self.facts.optimizer);
    }

    /// Notes a schedule.
    pub(crate) fn scheduler<S: Scheduler + ?Sized>(&mut self, scheduler: &S) {
        self.facts.scheduler = match scheduler.stand_in() {
            Some(dummy) => given_scheduler(dummy),
            None => GivenScheduler::Real,
        };
        self.schedulers.push(self.facts.scheduler);
    }

    /// Every optimizer with every schedule; nothing where there is none of a kind.
    pub(super) fn pairs(&self) -> Vec<(GivenOptimizer, GivenScheduler)> {
        let optimizers = match self.optimizers.as_slice() {
            [] => std::slice::from_ref(&self.facts.optimizer),
            all => all,
        };
        let schedulers = match self.schedulers.as_slice() {
            [] => std::slice::from_ref(&self.facts.scheduler),
            all => all,
        };
        let pairs = optimizers
            .iter()
            .flat_map(|optimizer| schedulers.iter().map(|scheduler| (*optimizer, *scheduler)));
        pairs.collect()
    }

    /// Whether something of it has to know what the config means: anything but loaders.
    pub(super) fn asks(&self) -> bool {
        let facts = &self.facts;
        self.has_model
            || facts.optimizer != GivenOptimizer::Nothing
            || facts.scheduler != GivenScheduler::Nothing
    }

    /// Whether something of it stands for what the config names.
    pub(super) fn has_stand_in(&self) -> bool {
        let is_dummy = |one: &GivenOptimizer| matches!(one, GivenOptimizer::Dummy { .. });
        self.optimizers.iter().any(is_dummy)
            || is_dummy(&self.facts.optimizer)
            || matches!(self.facts.scheduler, GivenScheduler::Dummy { .. })
    }

    /// The same with what was prepared before, where nothing of the kind is prepared now.
    pub(super) fn after(mut self, before: &Self) -> Self {
        let facts = &mut self.facts;
        if !self.has_model {
            facts.hidden_sizes.clone_from(&before.facts.hidden_sizes);
            self.has_model = before.has_model;
        }
        if facts.batch_sizes.is_empty() {
            facts.batch_sizes.clone_from(&before.facts.batch_sizes);
        }
        if facts.optimizer == GivenOptimizer::Nothing {
            facts.optimizer = before.facts.optimizer;
        }
        if facts.scheduler == GivenScheduler::Nothing {
            facts.scheduler = before.facts.scheduler;
        }
        self
    }
}

/// What matters of an optimizer.
pub(super) fn given_optimizer<O: Optimizer + ?Sized>(optimizer: &O) -> GivenOptimizer {
    match optimizer.stand_in() {
        Some(dummy) => {
            let config = dummy.config();
            GivenOptimizer::Dummy {
                lr: config.lr,
                weight_decay: config.weight_decay,
            }
        }
        None => GivenOptimizer::Real {
            lr: optimizer.groups().default_lr(),
        },
    }
}

/// What matters of a stand-in for a schedule.
pub(super) fn given_scheduler(dummy: &DummyScheduler) -> GivenScheduler {
    let config = dummy.config();
    GivenScheduler::Dummy {
        total_num_steps: config.total_num_steps,
        warmup_num_steps: config.warmup_num_steps,
        has_callable: dummy.callable().is_some(),
    }
}
