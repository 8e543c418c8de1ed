use std::cell::{OnceCell, RefCell};
use std::num::{NonZeroU32, NonZeroUsize};
use std::rc::Rc;

use accelerate_plan::parallel::deepspeed::{OptimizerRole, RoleMistake, Roles};
use accelerate_plan::parallel::{
    Accumulation, DeepSpeedConfig, DeepSpeedJob, GivenOptimizer, GivenScheduler, JobFacts,
    ParallelPlan, PlanError, Precision,
};

use super::together::{given_optimizer, given_scheduler};
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
    /// The first with an optimizer, for which more is known.
    trained: OnceCell<Rc<DeepSpeedJob>>,
    latest: RefCell<Option<Rc<DeepSpeedJob>>>,
    /// Stand-ins, and what stands in their places.
    replaced: RefCell<Vec<Replaced>>,
}

/// A stand-in, by its rates, and the rates of the optimizer in its place.
#[derive(Debug)]
struct Replaced {
    stand_in: LearningRates,
    own: LearningRates,
    given: GivenOptimizer,
}

impl DeepSpeed {
    pub(crate) fn new(config: DeepSpeedConfig, job: JobFacts, stays_as_loaded: bool) -> Self {
        Self {
            config,
            job,
            stays_as_loaded,
            known: RefCell::default(),
            first: OnceCell::new(),
            trained: OnceCell::new(),
            latest: RefCell::default(),
            replaced: RefCell::default(),
        }
    }

    /// The config: with nothing `auto` left in it once things are prepared.
    pub(crate) fn config(&self) -> &DeepSpeedConfig {
        self.told().map_or(&self.config, |told| &told.config)
    }

    /// The plan, once things are prepared.
    pub(crate) fn plan(&self) -> Option<&ParallelPlan> {
        self.told().map(|told| &told.plan)
    }

    fn told(&self) -> Option<&DeepSpeedJob> {
        let told = self.trained.get().or_else(|| self.first.get());
        told.map(|told| &**told)
    }

    /// Over how many batches gradients are added up by what is known now.
    pub(crate) fn steps(&self) -> Option<NonZeroUsize> {
        let told = self.latest.borrow().clone();
        let accumulation = match told {
            Some(told) => told.plan.accumulation,
            None => self.preview().ok()?.accumulation,
        };
        let Accumulation::Steps(steps) = accumulation else {
            return None;
        };
        NonZeroUsize::try_from(steps).ok()
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
        let (optimizer, scheduler) = (self.config.names_optimizer(), self.config.names_scheduler());
        for (own, schedule) in together.pairs() {
            let roles = Roles::decide(optimizer, scheduler, own, schedule);
            let _roles = roles.map_err(PlanError::Role)?;
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
        let first = self.first.get_or_init(|| Rc::clone(&told));
        if first.batch != told.batch {
            tracing::info!("the sizes of batches are now: {}", told.batch);
        }
        let is_new = |note: &&String| Rc::ptr_eq(first, &told) || !first.plan.notes.contains(*note);
        for note in told.plan.notes.iter().filter(is_new) {
            tracing::warn!("{note}");
        }
        if told.roles.optimizer != OptimizerRole::Nobody {
            let _first = self.trained.get_or_init(|| Rc::clone(&told));
        }
        *self.latest.borrow_mut() = Some(Rc::clone(&told));
        told
    }

    /// The optimizer that the config names, with the parameters of its stand-in. What is `auto` has this
    /// stand-in's values.
    ///
    /// # Errors
    /// [`Error::Sharding`] if it names none, or one that this library does not have.
    pub(crate) fn optimizer_for(&self, dummy: &DummyOptim) -> Result<Box<dyn Optimizer>> {
        let given = given_optimizer(dummy);
        let told = self.told_for(given, None)?;
        let named = told.and_then(|told| told.optimizer);
        let named = named.ok_or(PlanError::Role(RoleMistake::NoOptimizer))?;
        let made = named_optimizer::build(&named, dummy.param_groups())?;
        self.replaced.borrow_mut().push(Replaced {
            stand_in: dummy.learning_rates().clone(),
            own: made.learning_rates().clone(),
            given,
        });
        Ok(made)
    }

    /// What the config means for one optimizer of those that are prepared together, and a schedule;
    /// nothing before things are prepared.
    fn told_for(
        &self,
        optimizer: GivenOptimizer,
        scheduler: Option<GivenScheduler>,
    ) -> Result<Option<DeepSpeedJob>> {
        if self.latest.borrow().is_none() {
            return Ok(None);
        }
        let mut facts = self.known.borrow().facts.clone();
        facts.optimizer = optimizer;
        facts.scheduler = scheduler.unwrap_or(facts.scheduler);
        Ok(Some(self.config.prepare(&self.job, &facts)?))
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
        let (rates, given) = self.in_place_of(dummy.learning_rates());
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
        let given = given.unwrap_or_else(|| given_optimizer(&*own));
        let told = self.told_for(given, Some(given_scheduler(dummy)))?;
        let named = told.and_then(|told| told.scheduler);
        match (&named, dummy.callable()) {
            (Some(named), _) => named_schedule::build(named, &*own),
            (None, Some(callable)) => callable(&*own),
            (None, None) => Err(PlanError::Role(RoleMistake::NoScheduler).into()),
        }
    }

    /// The rates that count instead of a stand-in's, and what it said.
    fn in_place_of(&self, rates: &LearningRates) -> (LearningRates, Option<GivenOptimizer>) {
        let replaced = self.replaced.borrow();
        let mut known = replaced.iter();
        match known.find(|replaced| replaced.stand_in.is_same(rates)) {
            Some(replaced) => (replaced.own.clone(), Some(replaced.given)),
            None => (rates.clone(), None),
        }
    }
}
