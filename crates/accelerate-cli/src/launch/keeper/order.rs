//! What a keeper has to do, and how it is told.

use std::{
    ffi::OsString, io, num::NonZeroI32, os::unix::process::CommandExt as _, process::Command,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{launch::error_file, machine::CpuList};

/// First argument of a keeper. Its terms follow, then the program and its arguments.
const MARK: &str = "__rank";

/// What a keeper has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) terms: Terms,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

/// How a keeper treats its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The process whose end is the keeper's order to stop.
    pub(crate) launcher: NonZeroI32,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Process group for the program; `None` gives it one of its own.
    pub(crate) group: Option<NonZeroI32>,
    /// Where the launcher hears of the program's start and end.
    pub(crate) news: Option<String>,
    /// CPUs to run on; none means any.
    pub(crate) cpus: CpuList,
    /// The program's error file; `None` leaves the matter to the launcher.
    pub(crate) errors: Option<error_file::Terms>,
}

impl Order {
    /// Reads an order from the arguments of this process; `None` if it is no keeper.
    pub(crate) fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        let [_, mark, terms, command @ ..] = arguments else {
            return None;
        };
        (mark == MARK).then_some(())?;
        Some(Self {
            terms: serde_json::from_str(terms.to_str()?).ok()?,
            command: command.to_vec(),
        })
    }

    /// The command that starts a keeper with this order. The keeper gets a process group of its
    /// own, out of reach of keys on the terminal.
    ///
    /// # Errors
    /// If this program cannot be found, or a path is no text.
    pub(crate) fn command(&self) -> io::Result<Command> {
        // This very file, even if it was replaced since we started.
        let ourselves = match cfg!(target_os = "linux") {
            true => "/proc/self/exe".into(),
            false => std::env::current_exe()?,
        };
        let mut command = Command::new(ourselves);
        command
            .arg(MARK)
            .arg(serde_json::to_string(&self.terms)?)
            .args(&self.command)
            .process_group(0);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_the_command_line() {
        let order = Order {
            terms: Terms {
                launcher: NonZeroI32::new(17).unwrap(),
                grace: Duration::from_millis(1500),
                group: None,
                news: Some("/proc/17/fd/9".to_owned()),
                cpus: [0, 1].into_iter().collect(),
                errors: None,
            },
            command: vec!["train".into(), "--lr".into(), "".into()],
        };
        let command = order.command().unwrap();
        let words: Vec<OsString> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(OsString::from)
            .collect();
        assert_eq!(Order::from_arguments(&words), Some(order));
        assert_eq!(Order::from_arguments(&words[1..]), None);
        assert_eq!(Order::from_arguments(&["accelerate".into()]), None);
    }
}
