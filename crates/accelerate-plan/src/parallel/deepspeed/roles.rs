//! Who provides the optimizer and the schedule.

use std::fmt;

use crate::parallel::{GivenOptimizer, GivenScheduler};

/// Who provides the optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OptimizerRole {
    /// Nobody: the model is only evaluated.
    Nobody,
    /// The program.
    Program,
    /// DeepSpeed's config, for a stand-in.
    Config,
}

/// Who provides the schedule, and who takes its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchedulerRole {
    /// Nobody.
    Nobody,
    /// The program, which takes its steps.
    Program,
    /// DeepSpeed's config, for a stand-in; it takes a step with the optimizer.
    Config,
    /// The stand-in itself, from the optimizer that there is then; it takes a step with it.
    Callable,
}

/// Who provides what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles {
    /// Who provides the optimizer.
    pub optimizer: OptimizerRole,
    /// Who provides the schedule.
    pub scheduler: SchedulerRole,
}

impl Roles {
    /// Decides who provides optimizer and schedule, from what DeepSpeed's config names and what the
    /// program prepares.
    ///
    /// | the config names | the program prepares | |
    /// | --- | --- | --- |
    /// | both | a stand-in for each | both come from the config |
    /// | neither | its own | both are the program's |
    /// | the schedule | its own optimizer, a stand-in for the schedule | |
    /// | the optimizer | a stand-in for it, and no schedule of its own | a stand-in can make one |
    ///
    /// # Errors
    /// [`RoleMistake`] for everything else.
    pub fn decide(
        names_optimizer: bool,
        names_scheduler: bool,
        optimizer: GivenOptimizer,
        scheduler: GivenScheduler,
    ) -> Result<Self, RoleMistake> {
        let optimizer = match (names_optimizer, optimizer) {
            (_, GivenOptimizer::Nothing) => OptimizerRole::Nobody,
            (false, GivenOptimizer::Real { .. }) => OptimizerRole::Program,
            (true, GivenOptimizer::Dummy { .. }) => OptimizerRole::Config,
            (true, GivenOptimizer::Real { .. }) => return Err(RoleMistake::OptimizerTwice),
            (false, GivenOptimizer::Dummy { .. }) => return Err(RoleMistake::NoOptimizer),
        };
        let scheduler = match (names_scheduler, scheduler) {
            (_, GivenScheduler::Nothing) => SchedulerRole::Nobody,
            (true, GivenScheduler::Real) => return Err(RoleMistake::SchedulerTwice),
            (false, GivenScheduler::Real) if optimizer == OptimizerRole::Config => {
                return Err(RoleMistake::SchedulerWithoutOptimizer);
            }
            (false, GivenScheduler::Real) => SchedulerRole::Program,
            (true, GivenScheduler::Dummy { .. }) => SchedulerRole::Config,
            (false, GivenScheduler::Dummy { has_callable, .. }) => match has_callable {
                true => SchedulerRole::Callable,
                false => return Err(RoleMistake::NoScheduler),
            },
        };
        Ok(Self {
            optimizer,
            scheduler,
        })
    }
}

/// Why the roles of optimizer and schedule do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoleMistake {
    /// The config names an optimizer, and the program prepares another one.
    OptimizerTwice,
    /// The program prepares a stand-in, and the config names no optimizer.
    NoOptimizer,
    /// The config names a schedule, and the program prepares another one.
    SchedulerTwice,
    /// The program prepares a stand-in, and the config names no schedule.
    NoScheduler,
    /// The optimizer is the config's, and the schedule the program's.
    SchedulerWithoutOptimizer,
}

impl RoleMistake {
    /// What to do about it.
    pub(crate) fn hint(self) -> String {
        match self {
            Self::OptimizerTwice => {
                "prepare a `DummyOptim`, or take `optimizer` out of the DeepSpeed config"
            }
            Self::NoOptimizer => {
                "prepare an optimizer of your own, or name one under `optimizer` in the DeepSpeed \
                 config"
            }
            Self::SchedulerTwice => {
                "prepare a `DummyScheduler`, or take `scheduler` out of the DeepSpeed config"
            }
            Self::NoScheduler => {
                "prepare a schedule of your own, name one under `scheduler` in the DeepSpeed \
                 config, or give the `DummyScheduler` a function that makes one"
            }
            Self::SchedulerWithoutOptimizer => {
                "prepare a `DummyScheduler` with a function that makes the schedule from the optimizer"
            }
        }
        .to_owned()
    }
}

impl fmt::Display for RoleMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OptimizerTwice => {
                "the DeepSpeed config names an optimizer, and the program prepares another one"
            }
            Self::NoOptimizer => {
                "the program prepares a stand-in for an optimizer, and the DeepSpeed config names none"
            }
            Self::SchedulerTwice => {
                "the DeepSpeed config names a schedule, and the program prepares another one"
            }
            Self::NoScheduler => {
                "the program prepares a stand-in for a schedule, and the DeepSpeed config names none"
            }
            Self::SchedulerWithoutOptimizer => {
                "the optimizer comes from the DeepSpeed config, so a schedule of the program has none \
                 to act on"
            }
        })
    }
}
