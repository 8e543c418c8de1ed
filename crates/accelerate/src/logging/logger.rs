use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{LazyLock, Mutex, PoisonError};

use accelerate_plan::env::{self, Environment};
use accelerate_plan::topology::Topology;
use tracing::Level;

use super::OrderedLogger;
use crate::state::PartialState;
use crate::{Error, Result};

/// What has been said once, by the logger's name and the message.
static SAID: LazyLock<Mutex<HashSet<(&'static str, String)>>> = LazyLock::new(Mutex::default);

/// Sends log messages of one part of a program, from the ranks that are to speak.
///
/// Events have the target `accelerate`, the name as the field `logger`, the rank as the
/// field `rank`, and a message that begins with `[RANK r]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logger {
    name: &'static str,
    level: Option<Level>,
    main_process_only: bool,
}

/// A logger whose messages come from the main process only.
///
/// `ACCELERATE_LOG_LEVEL` sets the lowest level that it passes on; without it, everything
/// goes to the subscriber, which has a filter of its own.
///
/// # Errors
/// [`Error::Argument`] if the variable holds no level.
///
/// # Source
/// `accelerate.logging.get_logger`. Differs: the level is the logger's; the subscriber of
/// the program keeps its own, which [`level_from_environment`] can be given to. Before the
/// process has a state, the rank that the launcher gave it counts.
pub fn get_logger(name: &'static str) -> Result<Logger> {
    Ok(get_logger_with_level(name, level_from_environment()?))
}

/// As [`get_logger`], with this lowest level, or none.
#[must_use]
pub fn get_logger_with_level(name: &'static str, level: Option<Level>) -> Logger {
    Logger {
        name,
        level,
        main_process_only: true,
    }
}

/// The lowest level that `ACCELERATE_LOG_LEVEL` asks for, for a subscriber that is set up.
///
/// # Errors
/// [`Error::Argument`] if the variable holds no level.
pub fn level_from_environment() -> Result<Option<Level>> {
    let text = Environment::from_process().get(&env::LOG_LEVEL)?;
    text.map(|text| parse_level(&text)).transpose()
}

/// Levels by the names that Python and Rust give them, in upper or lower case.
fn parse_level(text: &str) -> Result<Level> {
    match text.to_ascii_lowercase().as_str() {
        "trace" | "notset" => Ok(Level::TRACE),
        "debug" => Ok(Level::DEBUG),
        "info" => Ok(Level::INFO),
        "warning" | "warn" => Ok(Level::WARN),
        "error" | "critical" | "fatal" => Ok(Level::ERROR),
        _ => Err(Error::Argument {
            operation: "log level",
            expected: format!(
                "`debug`, `info`, `warning`, `error` or `critical` in `{}`",
                env::LOG_LEVEL.name()
            ),
            found: format!("`{text}`"),
        }),
    }
}

impl Logger {
    /// The same logger, speaking on every process. `main_process_only` off.
    #[must_use]
    pub fn on_every_process(mut self) -> Self {
        self.main_process_only = false;
        self
    }

    /// The same logger, speaking on every process, one rank after the other.
    #[must_use]
    pub fn in_order(self) -> OrderedLogger {
        OrderedLogger::new(self)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether messages of this level pass. A subscriber may still leave them out.
    #[must_use]
    pub fn is_enabled_for(&self, level: Level) -> bool {
        // `tracing` orders levels by how much they let through.
        self.level.is_none_or(|lowest| level <= lowest)
    }

    /// Logs what helps to find a fault.
    pub fn debug(&self, message: impl Display) {
        self.log(Level::DEBUG, message);
    }

    /// Logs what happens.
    pub fn info(&self, message: impl Display) {
        self.log(Level::INFO, message);
    }

    /// Logs what may be wrong.
    pub fn warning(&self, message: impl Display) {
        self.log(Level::WARN, message);
    }

    /// Logs what went wrong.
    pub fn error(&self, message: impl Display) {
        self.log(Level::ERROR, message);
    }

    /// Logs a message at this level.
    pub fn log(&self, level: Level, message: impl Display) {
        if self.is_enabled_for(level) {
            let rank = rank();
            if rank == 0 || !self.main_process_only {
                self.emit(level, rank, &message);
            }
        }
    }

    /// As [`warning`](Self::warning), once for each message in the life of the process.
    pub fn warning_once(&self, message: impl Display) {
        let message = message.to_string();
        let new = SAID
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((self.name, message.clone()));
        if new {
            self.warning(message);
        }
    }

    pub(super) fn emit(&self, level: Level, rank: usize, message: &dyn Display) {
        let logger = self.name;
        macro_rules! event {
            ($level:ident) => {
                tracing::event!(target: "accelerate", Level::$level, logger, rank, "[RANK {rank}] {message}")
            };
        }
        match level {
            Level::TRACE => event!(TRACE),
            Level::DEBUG => event!(DEBUG),
            Level::INFO => event!(INFO),
            Level::WARN => event!(WARN),
            Level::ERROR => event!(ERROR),
        }
    }
}

/// This process's rank: of its state, or else what its launcher says.
fn rank() -> usize {
    PartialState::current().map_or_else(
        || {
            let topology = Topology::read(&Environment::from_process());
            topology.ok().flatten().map_or(0, |place| place.rank())
        },
        |state| state.process_index(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_names_of_python_and_of_rust() -> Result<()> {
        assert_eq!(parse_level("WARNING")?, Level::WARN);
        assert_eq!(parse_level("Critical")?, Level::ERROR);
        let error = parse_level("loud").unwrap_err().to_string();
        assert!(
            error.contains("ACCELERATE_LOG_LEVEL") && error.contains("`loud`"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn a_level_lets_itself_and_what_is_worse_through() {
        let logger = get_logger_with_level("test", Some(Level::WARN));
        assert!(logger.is_enabled_for(Level::ERROR) && logger.is_enabled_for(Level::WARN));
        assert!(!logger.is_enabled_for(Level::INFO));
        assert!(get_logger_with_level("test", None).is_enabled_for(Level::DEBUG));
    }
}
