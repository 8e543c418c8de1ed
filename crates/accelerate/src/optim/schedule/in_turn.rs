use std::fmt;

use super::scheduler::{RatesBefore, Scheduler};
use crate::optim::state_dict::StateReader;
use crate::optim::{LearningRates, Optimizer, StateDict};
use crate::{Error, Result};

/// Lets schedules follow one after another, each from its step 0.
///
/// # Source
/// `torch.optim.lr_scheduler.SequentialLR`.
pub struct SequentialLR {
    schedules: Vec<Box<dyn Scheduler>>,
    milestones: Vec<u64>,
    rates: LearningRates,
    last_epoch: u64,
    last_lr: Vec<f64>,
}

impl SequentialLR {
    /// Starts with the first of `schedules`; at each of `milestones` the next takes over.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is not one milestone between each two schedules, a
    /// schedule belongs to another optimizer, or one cannot start again.
    pub fn new<O>(
        optimizer: &O,
        schedules: Vec<Box<dyn Scheduler>>,
        milestones: Vec<u64>,
    ) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        let rates = optimizer.learning_rates().clone();
        belong_to("SequentialLR", &schedules, &rates)?;
        if milestones.len() + 1 != schedules.len() || !milestones.is_sorted() {
            return Err(Error::Argument {
                operation: "SequentialLR",
                expected: format!("{} rising milestones", schedules.len() - 1),
                found: format!("{milestones:?}"),
            });
        }
        for (group, initial) in rates.initial().into_iter().enumerate() {
            rates.set(group, initial);
        }
        let mut sequence = Self {
            schedules,
            milestones,
            last_epoch: 0,
            last_lr: Vec::new(),
            rates,
        };
        let first = sequence.turn();
        sequence.schedules[first].restart(RatesBefore::Initial)?;
        sequence.last_lr = sequence.schedules[first].last_lr();
        Ok(sequence)
    }

    /// Whose turn it is.
    fn turn(&self) -> usize {
        let passed = |milestone: &&u64| **milestone <= self.last_epoch;
        self.milestones.iter().take_while(passed).count()
    }
}

impl Scheduler for SequentialLR {
    fn step(&mut self) -> Result<()> {
        self.last_epoch += 1;
        let turn = self.turn();
        let begins = turn > 0 && self.milestones[turn - 1] == self.last_epoch;
        let schedule = &mut self.schedules[turn];
        if begins {
            schedule.restart(RatesBefore::Others)?;
        } else {
            schedule.step()?;
        }
        self.last_lr = schedule.last_lr();
        Ok(())
    }

    fn last_lr(&self) -> Vec<f64> {
        self.last_lr.clone()
    }

    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    fn step_count(&self) -> u64 {
        self.last_epoch + 1
    }

    fn length(&self) -> Option<u64> {
        let last = self.schedules.last()?.length()?;
        Some(last + self.milestones.last().copied().unwrap_or_default())
    }

    fn state_dict(&self) -> StateDict {
        let mut state = parts(&self.schedules);
        state.push_count("last_epoch", self.last_epoch);
        state
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let last_epoch = reader.count("last_epoch");
        reader.skip("schedule.");
        reader.finish("SequentialLR")?;
        load_parts(&mut self.schedules, state)?;
        self.last_epoch = last_epoch.unwrap_or_default();
        let turn = self.turn();
        self.last_lr = self.schedules[turn].last_lr();
        Ok(())
    }
}

impl fmt::Debug for SequentialLR {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequentialLR")
            .field("milestones", &self.milestones)
            .field("last_epoch", &self.last_epoch)
            .field("last_lr", &self.last_lr)
            .finish_non_exhaustive()
    }
}

/// Moves several schedules at each step, each from where the one before it left the rates.
///
/// # Source
/// `torch.optim.lr_scheduler.ChainedScheduler`.
pub struct ChainedScheduler {
    schedules: Vec<Box<dyn Scheduler>>,
    rates: LearningRates,
    step_count: u64,
}

impl ChainedScheduler {
    /// A chain of `schedules` of one optimizer.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no schedule, or they belong to different optimizers.
    pub fn new<O>(optimizer: &O, schedules: Vec<Box<dyn Scheduler>>) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        let rates = optimizer.learning_rates().clone();
        belong_to("ChainedScheduler", &schedules, &rates)?;
        Ok(Self {
            schedules,
            rates,
            step_count: 1,
        })
    }
}

impl Scheduler for ChainedScheduler {
    fn step(&mut self) -> Result<()> {
        self.step_count += 1;
        self.schedules
            .iter_mut()
            .try_for_each(|schedule| schedule.step())
    }

    fn last_lr(&self) -> Vec<f64> {
        self.schedules
            .last()
            .map_or_else(|| self.rates.all(), |last| last.last_lr())
    }

    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    fn step_count(&self) -> u64 {
        self.step_count
    }

    fn state_dict(&self) -> StateDict {
        let mut state = parts(&self.schedules);
        state.push_count("step_count", self.step_count);
        state
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let step_count = reader.count("step_count");
        reader.skip("schedule.");
        reader.finish("ChainedScheduler")?;
        load_parts(&mut self.schedules, state)?;
        self.step_count = step_count.unwrap_or_default();
        Ok(())
    }
}

impl fmt::Debug for ChainedScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainedScheduler")
            .field("schedules", &self.schedules.len())
            .field("step_count", &self.step_count)
            .finish_non_exhaustive()
    }
}

fn belong_to(
    operation: &'static str,
    schedules: &[Box<dyn Scheduler>],
    rates: &LearningRates,
) -> Result<()> {
    let strangers = schedules
        .iter()
        .filter(|schedule| !schedule.learning_rates().is_same(rates))
        .count();
    if schedules.is_empty() || strangers > 0 {
        return Err(Error::Argument {
            operation,
            expected: "one or more schedules of this optimizer".into(),
            found: format!("{} and {strangers} of others", schedules.len() - strangers),
        });
    }
    Ok(())
}

fn parts(schedules: &[Box<dyn Scheduler>]) -> StateDict {
    let mut state = StateDict::new();
    for (number, schedule) in schedules.iter().enumerate() {
        state.push_all(&format!("schedule.{number}."), schedule.state_dict());
    }
    state
}

/// Loads each schedule's part; if one does not fit, all go back to where they were.
fn load_parts(schedules: &mut [Box<dyn Scheduler>], state: &StateDict) -> Result<()> {
    let before = parts(schedules);
    let load = |schedules: &mut [Box<dyn Scheduler>], state: &StateDict| {
        schedules
            .iter_mut()
            .enumerate()
            .try_for_each(|(number, schedule)| {
                schedule.load_state_dict(&state.part(&format!("schedule.{number}.")))
            })
    };
    load(schedules, state).or_else(|error| {
        load(schedules, &before)?;
        Err(error)
    })
}
