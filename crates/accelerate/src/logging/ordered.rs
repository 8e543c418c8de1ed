use std::fmt::Display;

use tracing::Level;

use super::Logger;
use crate::state::PartialState;
use crate::{Error, Result};

/// A [`Logger`] with which every process speaks, one rank after the other.
///
/// The ranks wait for each other at every message, so its level must be the same on all
/// of them; a message below it makes nobody wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderedLogger {
    logger: Logger,
}

impl OrderedLogger {
    pub(super) fn new(logger: Logger) -> Self {
        Self { logger }
    }

    /// Logs what helps to find a fault.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    pub fn debug(&self, message: impl Display) -> Result<()> {
        self.log(Level::DEBUG, message)
    }

    /// Logs what happens.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    pub fn info(&self, message: impl Display) -> Result<()> {
        self.log(Level::INFO, message)
    }

    /// Logs what may be wrong.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    pub fn warning(&self, message: impl Display) -> Result<()> {
        self.log(Level::WARN, message)
    }

    /// Logs what went wrong.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    pub fn error(&self, message: impl Display) -> Result<()> {
        self.log(Level::ERROR, message)
    }

    /// Logs a message at this level, rank 0 first.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::Argument`] before the process has a state, as there is nobody to wait for
    /// yet; as [`PartialState::wait_for_everyone`].
    pub fn log(&self, level: Level, message: impl Display) -> Result<()> {
        if !self.logger.is_enabled_for(level) {
            return Ok(());
        }
        let Some(state) = PartialState::current() else {
            return Err(Error::Argument {
                operation: "log in order",
                expected: "an `Accelerator` or `PartialState` that was made before".to_owned(),
                found: "a process that has not joined its job".to_owned(),
            });
        };
        for rank in 0..state.num_processes() {
            if rank == state.process_index() {
                self.logger.emit(level, rank, &message);
            }
            state.wait_for_everyone()?;
        }
        Ok(())
    }
}
