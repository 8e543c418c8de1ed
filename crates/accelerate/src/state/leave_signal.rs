//! Signals that ask a job to end: noticed, and obeyed at the next good moment.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::{Error, Result};

/// Within this time a second signal is taken for the first one: a cluster manager signals every
/// process of a job, and a launcher passes on what it gets.
const ECHO: Duration = Duration::from_secs(1);

/// A signal that asks a job to end.
///
/// The first one lets it leave when it is asked for
/// ([`should_leave`](crate::Accelerator::should_leave)); another one, a second or more later, ends
/// the process at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaveSignal {
    /// SIGTERM, which cluster managers, containers and `accelerate launch` send.
    Terminate,
    /// SIGINT, which a keyboard sends. It reaches a program by itself; of several processes the
    /// launcher hears it, and sends SIGTERM.
    Interrupt,
    /// SIGUSR1, which a cluster manager can be told to send some time before the end
    /// (`sbatch --signal=USR1@120`). The launcher does not pass it on.
    User1,
}

impl LeaveSignal {
    fn number(self) -> c_int {
        match self {
            Self::Terminate => SIGTERM,
            Self::Interrupt => SIGINT,
            Self::User1 => SIGUSR1,
        }
    }
}

/// Whether this process was asked to end, and those who wait for it.
#[derive(Debug)]
pub(super) struct Request {
    first: Mutex<Option<Instant>>,
    came: Condvar,
}

static REQUEST: Request = Request {
    first: Mutex::new(None),
    came: Condvar::new(),
};

/// The signals that do not end this process any more.
static CAUGHT: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());

impl Request {
    /// That of this process.
    pub(super) fn of_process() -> &'static Self {
        &REQUEST
    }

    /// Asks; whether it counts as the first time.
    pub(super) fn raise(&self) -> bool {
        let mut first = self.lock();
        let is_first = first.is_none_or(|first| first.elapsed() < ECHO);
        first.get_or_insert_with(Instant::now);
        self.came.notify_all();
        is_first
    }

    pub(super) fn is_raised(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns when this process was asked to end.
    pub(super) fn wait(&self) {
        let mut first = self.lock();
        while first.is_none() {
            first = self
                .came
                .wait(first)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notices these signals from now on, on a thread of its own.
///
/// # Errors
/// [`Error::Signals`] if the system refuses.
pub(super) fn catch(signals: &[LeaveSignal]) -> Result<()> {
    let mut caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = || signals.iter().map(|signal| signal.number());
    // This is asked at every step.
    if numbers().all(|number| caught.contains(&number)) {
        return Ok(());
    }
    let new: BTreeSet<c_int> = numbers().collect();
    let new: Vec<c_int> = new.difference(&caught).copied().collect();
    listen(&new).map_err(|source| Error::Signals { source })?;
    caught.extend(new);
    Ok(())
}

fn listen(signals: &[c_int]) -> io::Result<()> {
    let mut arriving = Signals::new(signals)?;
    thread::Builder::new()
        .name("accelerate-signals".to_owned())
        .spawn(move || {
            for signal in arriving.forever() {
                if !Request::of_process().raise() {
                    // Ends the process; where it cannot, the signal counts for nothing.
                    let _ = emulate_default_handler(signal);
                }
            }
        })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_no_second_signal() {
        let request = Request {
            first: Mutex::new(None),
            came: Condvar::new(),
        };
        assert!(!request.is_raised());
        assert!(request.raise() && request.raise());
        assert!(request.is_raised());
        request.wait();
        *request.lock() = Instant::now().checked_sub(2 * ECHO);
        assert!(!request.raise(), "a second one ends the process");
    }
}
