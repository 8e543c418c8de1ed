//! Naming the ranks that an operation waited for in vain.

use std::fmt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{ExceptionKind, ProcessGroup};

use super::PartialState;
use super::presence::{self, Attendance};
use crate::{Error, Result};

/// How long the whole roll call may take.
const LIMIT: Duration = Duration::from_secs(5);
/// For how long somebody is looked for after a connection broke.
const SEARCH: Duration = Duration::from_secs(1);
/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The ranks that no longer take part in the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollCall {
    /// Their processes have ended.
    pub ended: Vec<usize>,
    /// They said that they have finished ([`PartialState::destroy_process_group`]).
    pub left: Vec<usize>,
    /// Their processes do not answer: stopped, or their machines cannot be reached.
    pub silent: Vec<usize>,
    /// Their processes live and did not finish. Filled in at the end of a job only.
    pub at_work: Vec<usize>,
}

impl RollCall {
    pub(super) fn of(answers: &[(usize, Attendance)]) -> Self {
        let those = |wanted: Attendance| {
            let found = answers.iter().filter(|&&(_, found)| found == wanted);
            found.map(|&(rank, _)| rank).collect()
        };
        Self {
            ended: those(Attendance::Ended),
            left: those(Attendance::Left),
            silent: those(Attendance::Silent),
            at_work: Vec::new(),
        }
    }

    /// Whether there is nobody to name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
            && self.left.is_empty()
            && self.silent.is_empty()
            && self.at_work.is_empty()
    }
}

impl fmt::Display for RollCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = [
            (&self.ended, "has ended", "have ended"),
            (&self.left, "has left the job", "have left the job"),
            (&self.silent, "does not answer", "do not answer"),
            (&self.at_work, "is still at work", "are still at work"),
        ];
        let mut first = true;
        for (ranks, one, several) in groups {
            let (noun, verb) = match ranks.len() {
                0 => continue,
                1 => ("rank", one),
                _ => ("ranks", several),
            };
            let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            write!(f, "{comma}{noun} {} {verb}", names.join(", "))?;
        }
        if first {
            f.write_str("every rank is still there")?;
        }
        Ok(())
    }
}

impl PartialState {
    /// Names the ranks that an operation waited for in vain.
    ///
    /// An error that says no more than that a connection broke or time was over becomes
    /// [`Error::RanksLost`], if some rank has ended, has left or does not answer. Every
    /// other error is given back as it is.
    #[must_use]
    pub fn explain(&self, error: Error) -> Error {
        let Error::Torch(error) = error else {
            return error;
        };
        let (Some(group), Some((operation, search))) = (self.process_group(), lost(&error)) else {
            return error.into();
        };
        match self.search(group, search) {
            roll if roll.is_empty() => error.into(),
            roll => Error::RanksLost {
                operation,
                rank: self.process_index(),
                roll: Box::new(roll),
                source: Box::new(error),
            },
        }
    }

    /// As [`explain`](Self::explain), for a result.
    pub(crate) fn explained<T>(&self, result: accelerate_torch::Result<T>) -> Result<T> {
        result.map_err(|error| self.explain(error.into()))
    }

    /// Looks for somebody who is gone, for some time.
    fn search(&self, group: &ProcessGroup, search: Duration) -> RollCall {
        let end = Instant::now() + search;
        loop {
            let roll = self.roll_call(group, LIMIT);
            if !roll.is_empty() || Instant::now() >= end {
                return roll;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Asks every other rank once, within `limit`.
    pub(super) fn roll_call(&self, group: &ProcessGroup, limit: Duration) -> RollCall {
        let (own, world) = (self.process_index(), self.num_processes());
        let (group, host) = (group.clone(), self.store_host().to_owned());
        let (tell, told) = mpsc::channel();
        // A store whose server is stopped keeps whoever asks it waiting.
        thread::spawn(move || {
            let _ = tell.send(presence::ask_all(group.store(), &host, own, world));
        });
        let server = self.store_rank().into_iter().collect();
        match told.recv_timeout(limit) {
            Ok(Ok(answers)) => RollCall::of(&answers),
            Ok(Err(_)) => RollCall {
                ended: server,
                ..Default::default()
            },
            Err(_) => RollCall {
                silent: server,
                ..Default::default()
            },
        }
    }
}

/// Whether an error may be about a rank that is gone: the operation, and how long to search.
fn lost(error: &accelerate_torch::Error) -> Option<(&'static str, Duration)> {
    match error {
        accelerate_torch::Error::ConnectionLost { operation, .. } => Some((operation, SEARCH)),
        accelerate_torch::Error::Timeout { operation, .. } => Some((operation, Duration::ZERO)),
        accelerate_torch::Error::Libtorch {
            operation,
            kind: ExceptionKind::Network | ExceptionKind::Backend | ExceptionKind::Standard,
            ..
        } => Some((operation, Duration::ZERO)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_by_what_became_of_them() {
        let roll = RollCall::of(&[
            (0, Attendance::Here),
            (1, Attendance::Ended),
            (2, Attendance::Left),
            (3, Attendance::Ended),
            (4, Attendance::Silent),
            (5, Attendance::Unknown),
        ]);
        assert_eq!(
            roll.to_string(),
            "ranks 1, 3 have ended, rank 2 has left the job, rank 4 does not answer"
        );
        assert_eq!(RollCall::default().to_string(), "every rank is still there");
    }
}
