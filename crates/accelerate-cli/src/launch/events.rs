//! What happens while a job runs, and who may bring it about.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
        mpsc::Sender,
    },
    time::Instant,
};

use super::{keeper_news::News, signals::Notice};

/// Something that the launcher reacts to while ranks run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Signal(Notice),
    Keeper(News),
    /// An output stream of this attempt has ended.
    StreamClosed {
        attempt: usize,
    },
    /// A rank on another machine has failed.
    PeerFailed {
        attempt: usize,
        description: String,
    },
}

/// Lets other machines end the attempt on this one.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    attempt: usize,
    events: Sender<Event>,
}

impl Outside {
    pub(super) fn new(attempt: usize, events: Sender<Event>) -> Self {
        Self { attempt, events }
    }

    /// Ends the attempt, because a rank on another machine failed. An attempt that has ended
    /// already takes no notice.
    pub(crate) fn peer_failed(&self, description: String) {
        let attempt = self.attempt;
        // Nobody listens any more once the job is over.
        let _ = self.events.send(Event::PeerFailed {
            attempt,
            description,
        });
    }
}

/// Whether the job is to end, for those who wait for other machines while no rank runs.
#[derive(Debug, Clone)]
pub(crate) struct StopRequest {
    /// Number of the signal that asked, or 0.
    signal: Arc<AtomicI32>,
    /// When the job has to be over.
    deadline: Option<Instant>,
}

/// Why a job is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Signal(i32),
    TimeLimit,
}

impl StopRequest {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self {
            signal: Arc::new(AtomicI32::new(0)),
            deadline,
        }
    }

    /// Remembers the first signal.
    pub(super) fn signal_arrived(&self, signal: i32) {
        let _ = self
            .signal
            .compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Why the job is to end, if it is.
    pub(crate) fn reason(&self) -> Option<Stop> {
        let is_late = self.deadline.is_some_and(|at| Instant::now() >= at);
        match self.signal.load(Ordering::Relaxed) {
            0 => is_late.then_some(Stop::TimeLimit),
            signal => Some(Stop::Signal(signal)),
        }
    }

    /// When the job has to be over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_to_stop_stays() {
        let stop = StopRequest::new(None);
        assert_eq!(stop.reason(), None);
        stop.signal_arrived(15);
        stop.signal_arrived(2);
        assert_eq!(stop.reason(), Some(Stop::Signal(15)));
        let late = StopRequest::new(Some(Instant::now()));
        assert_eq!(late.reason(), Some(Stop::TimeLimit));
    }
}
