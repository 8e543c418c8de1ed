//! A child that ends before we do: what we are asked to do, it is asked to do.

use std::{
    io,
    process::{Child, Command},
    thread,
};

use rustix::process::{self, Pid, Signal};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::{SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::siginfo::Cause,
};

use crate::launch::Exit;

/// Runs a command to its end. Signals that ask this process to end go to the child, which knows
/// how to end what it has started; keys on the terminal reach it by themselves.
///
/// # Errors
/// If it cannot be started or waited for.
pub(crate) fn run(mut command: Command) -> io::Result<Exit> {
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
    status.map(Exit::from)
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let number = i32::try_from(child.id()).ok();
    number
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("no process number"))
}
