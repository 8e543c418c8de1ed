//! What a stage is.

use crate::failure::Failure;
use crate::probe::Probe;

/// One thing that is tried out, with a result and a deadline of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// How it is named on the command line and in reports.
    pub(crate) name: &'static str,
    pub(crate) content: Content,
}

/// What a stage consists of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// These steps, one after the other on every rank.
    Steps(&'static [Step]),
    /// The same, where there are several processes.
    StepsOfSeveral(&'static [Step]),
}

/// A part of a stage. All ranks take the steps of a stage in the same order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Does the work and compares; an error ends the stage on this rank.
    pub(crate) run: fn(&mut Probe<'_>) -> Result<(), Failure>,
}

impl Stage {
    pub(crate) const fn new(name: &'static str, steps: &'static [Step]) -> Self {
        Self {
            name,
            content: Content::Steps(steps),
        }
    }

    pub(crate) const fn of_several(name: &'static str, steps: &'static [Step]) -> Self {
        Self {
            name,
            content: Content::StepsOfSeveral(steps),
        }
    }

    /// The steps for a job of `world` processes, or why there are none.
    pub(crate) fn steps(&self, world: usize) -> Result<&'static [Step], &'static str> {
        match self.content {
            Content::StepsOfSeveral(_) if world < 2 => {
                Err("one process has nobody to talk to; start several")
            }
            Content::Steps(steps) | Content::StepsOfSeveral(steps) => Ok(steps),
        }
    }
}

impl Step {
    pub(crate) const fn new(
        name: &'static str,
        run: fn(&mut Probe<'_>) -> Result<(), Failure>,
    ) -> Self {
        Self { name, run }
    }
}
