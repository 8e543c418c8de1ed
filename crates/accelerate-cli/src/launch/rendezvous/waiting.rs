//! What a person who waits is told.

use std::{
    fmt,
    time::{Duration, Instant},
};

use super::error::words;

/// How things are while nodes are still missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Where the nodes meet.
    pub(crate) endpoint: String,
    pub(crate) elapsed: Duration,
    /// When the wait is given up.
    pub(crate) limit: Duration,
    pub(crate) state: State,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody keeps the store yet.
    NoStore { why: String },
    /// Nodes are missing.
    Gathering {
        num_nodes: usize,
        joined: Vec<String>,
        missing: Vec<String>,
    },
    /// The job runs with as many nodes as it wants.
    Full { num_nodes: usize },
    /// All are there; the node of rank 0 has not said where the ranks meet.
    NoMeetingPoint { node: String },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (endpoint, elapsed) = (&self.endpoint, self.elapsed.as_secs());
        match &self.state {
            State::NoStore { why } => {
                write!(
                    f,
                    "no launcher answers at {endpoint} after {elapsed} s ({why})"
                )?;
            }
            State::Gathering {
                num_nodes,
                joined,
                missing,
            } => write!(
                f,
                "{} of {num_nodes} nodes have joined at {endpoint} after {elapsed} s; joined: {}; \
                 missing: {}",
                joined.len(),
                words(joined),
                words(missing)
            )?,
            State::Full { num_nodes } => write!(
                f,
                "the job at {endpoint} runs on all its {num_nodes} nodes; waiting for {elapsed} s \
                 to take the place of one"
            )?,
            State::NoMeetingPoint { node } => write!(
                f,
                "all nodes have joined at {endpoint}; waiting for {elapsed} s for {node} to say \
                 where the ranks meet"
            )?,
        }
        write!(f, "; giving up after {} s", self.limit.as_secs())
    }
}

/// Tells when it is time to speak: after a while, and then from time to time.
#[derive(Debug)]
pub(super) struct Patience {
    started: Instant,
    limit: Duration,
    next: Duration,
    again: Duration,
}

impl Patience {
    pub(super) fn new(limit: Duration, first: Duration, again: Duration) -> Self {
        Self {
            started: Instant::now(),
            limit,
            next: first,
            again,
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn deadline(&self) -> Instant {
        self.started + self.limit
    }

    pub(super) fn is_over(&self) -> bool {
        self.elapsed() >= self.limit
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether something is to be said soon, or the wait to be given up.
    pub(super) fn is_close(&self) -> bool {
        self.elapsed() >= self.next.min(self.limit)
    }

    /// Whether something is to be said now.
    pub(super) fn is_due(&mut self) -> bool {
        let elapsed = self.elapsed();
        let due = elapsed >= self.next;
        if due {
            self.next = elapsed + self.again;
        }
        due
    }
}
