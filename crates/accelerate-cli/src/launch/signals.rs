//! Signals as events.

use std::{fs, io, thread};

use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::siginfo::Cause,
};

/// What a signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A child has ended.
    ChildEnded,
    /// We are asked to end.
    Stop {
        /// Number of the signal.
        signal: i32,
        /// Whether a key on the terminal sent it, to all processes in the foreground.
        from_terminal: bool,
    },
    /// We are asked what the ranks are doing (SIGUSR1).
    Show,
}

/// Calls `deliver` for each signal, on a thread of its own, until it returns `false`.
///
/// From here on no signal of this list ends the process by itself. What was ignored from the start
/// (a hang-up, by `nohup`) stays ignored, also in the processes we start. SIGUSR2 is caught and means
/// nothing: cluster managers send it and SIGUSR1 to whole jobs, for the programs in them.
pub(crate) fn listen(deliver: impl Fn(Notice) -> bool + Send + 'static) -> io::Result<()> {
    let mut signals = vec![SIGCHLD, SIGINT, SIGQUIT, SIGTERM];
    let others = [SIGHUP, SIGUSR1, SIGUSR2].into_iter();
    signals.extend(others.filter(|signal| !is_ignored(*signal)));
    let mut arriving = SignalsInfo::<WithOrigin>::new(&signals)?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in arriving.forever() {
                let notice = match origin.signal {
                    SIGCHLD => Notice::ChildEnded,
                    SIGUSR1 => Notice::Show,
                    SIGUSR2 => continue,
                    signal => Notice::Stop {
                        signal,
                        from_terminal: matches!(origin.cause, Cause::Kernel),
                    },
                };
                if !deliver(notice) {
                    break;
                }
            }
        })?;
    Ok(())
}

/// Whether a signal is ignored in this process, where the system tells.
fn is_ignored(signal: i32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return false;
    };
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// The name of a signal, such as `SIGTERM`, or its number.
pub(crate) fn name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}
