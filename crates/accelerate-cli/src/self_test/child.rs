//! A child that ends before we do: what we are asked to do, it is asked to do.

use std::{
    fmt, io,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus},
    thread,
};

use rustix::process::{self, Pid, Signal};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::{SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::{self, siginfo::Cause},
};

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It returned this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

impl Ending {
    /// The exit code that stands for this end: 128 is added to a signal.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(u8::try_from(code).unwrap_or(1)),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(1),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "returned exit code {code}"),
            Self::Signal(signal) => match low_level::signal_name(*signal) {
                Some(name) => write!(f, "was killed by {name}"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// Runs a command to its end. Signals that ask this process to end go to the child, which knows
/// how to end what it has started; keys on the terminal reach it by themselves.
///
/// # Errors
/// If it cannot be started or waited for.
pub(super) fn run(mut command: Command) -> io::Result<Ending> {
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let mut child = command.spawn()?;
    let pid = pid_of(&child)?;
    let handle = signals.handle();
    let forwarding = thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in signals.forever() {
                let is_from_terminal = matches!(origin.cause, Cause::Kernel);
                if let Some(signal) = Signal::from_named_raw(origin.signal)
                    && !is_from_terminal
                {
                    // It may have ended just now.
                    let _ = process::kill_process(pid, signal);
                }
            }
        })?;
    let status = child.wait();
    handle.close();
    // A thread that panicked has said so.
    let _ = forwarding.join();
    Ok(Ending::of(status?))
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let number = i32::try_from(child.id()).ok();
    number
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("no process number"))
}
