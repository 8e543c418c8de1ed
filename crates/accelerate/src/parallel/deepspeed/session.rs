use std::cell::{OnceCell, RefCell};
use std::num::{NonZeroU32, NonZeroUsize};
use std::rc::Rc;

use accelerate_plan::parallel::deepspeed::RoleMistake;
use accelerate_plan::parallel::{
    DeepSpeedConfig, DeepSpeedJob, JobFacts, ParallelPlan, PlanError, Precision,
};

use super::{Together, named_optimizer, named_schedule};
use crate::optim::{DummyOptim, DummyScheduler, LearningRates, Optimizer, Scheduler};
use crate::{Error, Result};

/// How an accelerator prepares things.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Over how many batches it adds gradients up.
    pub(crate) accumulation: NonZeroUsize,
    /// Whether loaders give batches for all ranks together.
    pub(crate) split_batches: bool,
}

/// DeepSpeed's config in a job, and what became of it when things were prepared.
#[derive(Debug)]
pub(crate) struct DeepSpeed {
    config: DeepSpeedConfig,
    job: JobFacts,
    /// Whether the device does not compute in the precision that the config asks for.
    stays_as_loaded: bool,
    known: RefCell<Together>,
    first: OnceCell<Rc<DeepSpeedJob>>,
    latest: RefCell<Option<Rc<DeepSpeedJob>>>,
    /// Rates of stand-ins, and those of the optimizers in their places.
    replaced: RefCell<Vec<(LearningRates, LearningRates)>>,
}

impl DeepSpeed {
    pub(crate) fn new(config: DeepSpeedConfig, job: JobFacts, stays_as_loaded: bool) -> Self {
        Self {
            config,
            job,
            stays_as_loaded,
            known: RefCell::default(),
            first: OnceCell::new(),
            latest: RefCell::default(),
            replaced: RefCell::default(),
        }
    }

    /// The config: with nothing `auto` left in it once things are prepared.
    pub(crate) fn config(&self) -> &DeepSpeedConfig {
        self.first.get().map_or(&self.config, |told| &told.config)
    }

    /// The plan, once things are prepared.
    pub(crate) fn plan(&self) -> Option<&ParallelPlan> {
        self.first.get().map(|told| &told.plan)
    }

    /// The plan as far as it is known before.
    pub(crate) fn preview(&self) -> Result<ParallelPlan> {
        let (mut plan, _) = self.config.preview(&self.job)?;
        self.adjust(&mut plan);
        Ok(plan)
    }

    fn adjust(&self, plan: &mut ParallelPlan) {
        if self.stays_as_loaded {
            plan.precision = Precision::AS_LOADED;
        }
    }

    /// Finds out what the config means for things that are prepared together, before the first of them
    /// is. Answers over how many batches gradients are added up, where that is known now.
    ///
    /// Optimizer and schedule that come alone wait for a model; loaders that come alone change nothing.
    /// Where the sizes of batches are open and no loader is there, the plan stays what it was: nothing
    /// else needs them.
    ///
    /// # Errors
    /// Those of [`DeepSpeedConfig::prepare`].
    pub(crate) fn settle(
        &self,
        together: Together,
        manner: Manner,
    ) -> Result<Option<NonZeroUsize>> {
        let asks = together.asks();
        let mut together = together.after(&self.known.borrow());
        let steps = u32::try_from(manner.accumulation.get()).ok();
        let steps = steps.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        together.facts.accumulation = steps;
        together.facts.split_batches = manner.split_batches;
        if !asks || !(together.has_model || together.has_stand_in()) {
            *self.known.borrow_mut() = together;
            return Ok(None);
        }
        let told = match self.config.prepare(&self.job, &together.facts) {
            Ok(told) => self.remember(told),
            Err(PlanError::NoBatchSize { .. }) if self.is_fine_without_sizes(&together) => {
                *self.known.borrow_mut() = together;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        *self.known.borrow_mut() = together;
        let steps = usize::try_from(told.batch.accumulation.value).ok();
        Ok(steps.and_then(NonZeroUsize::new))
    }

    fn is_fine_without_sizes(&self, together: &Together) -> bool {
        let names_any = self.config.names_optimizer() || self.config.names_scheduler();
        together.facts.batch_sizes.is_empty() && !names_any
    }

    fn remember(&self, mut told: DeepSpeedJob) -> Rc<DeepSpeedJob> {
        self.adjust(&mut told.plan);
        let told = Rc::new(told);
        let first = self.first.get_or_init(|| {
            for note in &told.plan.notes {
                tracing::info!("{note}");
            }
            Rc::clone(&told)
        });
        if first.batch != told.batch {
            tracing::info!("the sizes of batches are now: {}", told.batch);
        }
        *self.latest.borrow_mut() = Some(Rc::clone(&told));
        told
    }

    /// The optimizer that the config names, with the parameters of its stand-in.
    ///
    /// # Errors
    /// [`Error::Sharding`] if it names none, or one that this library does not have.
    pub(crate) fn optimizer_for(&self, dummy: &DummyOptim) -> Result<Box<dyn Optimizer>> {
        let told = self.latest.borrow().clone();
        let named = told.as_ref().and_then(|told| told.optimizer.as_ref());
        let named = named.ok_or(PlanError::Role(RoleMistake::NoOptimizer))?;
        let made = named_optimizer::build(named, dummy.param_groups())?;
        let rates = (
            dummy.learning_rates().clone(),
            made.learning_rates().clone(),
        );
        self.replaced.borrow_mut().push(rates);
        Ok(made)
    }

    /// The schedule that the config names, or that its stand-in makes, for the one of `optimizers` that
    /// the stand-in was made for.
    ///
    /// # Errors
    /// [`Error::Sharding`] if nothing makes one, or the config names one that this library does not
    /// have; [`Error::Argument`] if its optimizer is not there; those of the program's function.
    pub(crate) fn schedule_for(
        &self,
        dummy: &DummyScheduler,
        optimizers: &[Rc<RefCell<dyn Optimizer>>],
    ) -> Result<Box<dyn Scheduler>> {
        let rates = self.in_place_of(dummy.learning_rates());
        let own = optimizers
            .iter()
            .find(|optimizer| optimizer.borrow().learning_rates().is_same(&rates));
        let Some(own) = own else {
            return Err(Error::Argument {
                operation: "DummyScheduler",
                expected: "an optimizer that is prepared with it, or was before".to_owned(),
                found: "one that is not".to_owned(),
            });
        };
        let own = own.borrow();
        let told = self.latest.borrow().clone();
        let named = told.as_ref().and_then(|told| told.scheduler.as_ref());
        match (named, dummy.callable()) {
            (Some(named), _) => named_schedule::build(named, &*own),
            (None, Some(callable)) => callable(&*own),
            (None, None) => Err(PlanError::Role(RoleMistake::NoScheduler).into()),
        }
    }

    /// The rates that count instead of a stand-in's.
    fn in_place_of(&self, rates: &LearningRates) -> LearningRates {
        let replaced = self.replaced.borrow();
        let known = replaced
            .iter()
            .find(|(stand_in, _)| stand_in.is_same(rates));
        known.map_or(rates, |(_, own)| own).clone()
    }
}
