//! How the launchers of several machines find each other, and what they tell each other.
//!
//! They meet at a [`store`] that one of them keeps, in the protocol of PyTorch's `TCPStore`. In
//! each round (one attempt of the job) all nodes come together, compare what they want, and take
//! their ranks; then each looks after the others until the round ends. What is guaranteed is
//! written in `docs/multi-node.md`.
//!
//! ```text
//! let mut nodes = Nodes::join(request, &interrupt, &mut tell)?;
//! loop {
//!     let round = nodes.next_round(local_world_size, &mut tell)?;
//!     nodes.subscribe(deliver);          // PeerEvent: the ranks here are to end
//!     match run_ranks(&round) {
//!         Ok(()) => break nodes.exit_barrier(limit),
//!         Err(failure) => nodes.report_failure(failure)?,   // and again, if a restart is left
//!     }
//! }
//! nodes.leave();
//! ```

mod agreement;
mod beginning;
mod ending;
mod endpoint;
mod error;
mod gathering;
mod interrupt;
mod joining;
mod keys;
mod options;
mod present;
mod request;
mod round;
mod store;
#[cfg(test)]
mod tests;
mod waiting;
mod watcher;

use std::{num::NonZeroUsize, time::Duration};

pub(crate) use self::{
    agreement::NodeView,
    ending::Barrier,
    endpoint::Endpoint,
    error::{Error, Result},
    interrupt::Interrupt,
    options::Options,
    request::{Backend, JoinRequest, Timing},
    round::{Cause, Failure, PeerEvent, Round},
    waiting::{State, Waiting},
};
use self::{
    agreement::Seat,
    gathering::Gathered,
    store::{
        client::{StoreClient, StoreError},
        server::StoreServer,
    },
    waiting::Patience,
    watcher::Watcher,
};
use super::port::Reservation;

/// Called from time to time while nodes are missing.
pub(crate) type Tell<'a> = dyn FnMut(&Waiting) + 'a;

/// How long a look at the store takes while something else may happen too.
const SLICE: Duration = Duration::from_millis(200);

/// A node among others. Dropping it without [`Nodes::leave`] looks to them like a crash.
#[derive(Debug)]
pub(crate) struct Nodes {
    request: JoinRequest,
    interrupt: Interrupt,
    /// Different for every launcher that ever ran.
    token: String,
    watcher: Option<Watcher>,
    store: StoreClient,
    /// Where the store is reached; not always the endpoint, for the node that keeps it.
    reached_at: Endpoint,
    current: Option<Current>,
    /// Last, so that our own connections end before it.
    server: Option<StoreServer>,
}

/// The round that this node takes part in.
#[derive(Debug, Clone)]
struct Current {
    number: usize,
    node: usize,
    seats: Vec<Seat>,
    succeeded: bool,
}

impl Current {
    /// Whether launchers of Python take part.
    fn is_mixed(&self) -> bool {
        self.seats.iter().any(|seat| seat.token.is_none())
    }
}

impl Nodes {
    /// Waits until all nodes have come, and takes this node's ranks for the next attempt.
    ///
    /// # Errors
    /// [`Error::Disagreement`], on all nodes alike; [`Error::Missing`]; [`Error::RankTaken`];
    /// [`Error::NoRestartLeft`]; [`Error::MixedRestart`]; [`Error::Interrupted`]; [`Error::Store`].
    pub(crate) fn next_round(
        &mut self,
        local_world_size: NonZeroUsize,
        tell: &mut Tell<'_>,
    ) -> Result<Round> {
        self.watcher = None;
        let timing = self.request.timing;
        let mut patience = Patience::new(timing.join, timing.first_report, timing.next_report);
        loop {
            let number = self.round_to_join()?;
            let gathered = self.gather(number, local_world_size, &mut patience, tell);
            let Gathered { node, seats } = match gathered {
                Ok(Some(gathered)) => gathered,
                Ok(None) => {
                    self.wait_for_end(number, &mut patience, tell)?;
                    continue;
                }
                Err(error) => {
                    self.take_back_wills();
                    let limit = match error {
                        Error::Interrupted => SLICE,
                        _ => timing.linger,
                    };
                    self.linger(None, limit);
                    return Err(error);
                }
            };
            self.current = Some(Current {
                number,
                node,
                seats,
                succeeded: false,
            });
            if let Some(round) = self.begin(&mut patience, tell)? {
                return Ok(round);
            }
        }
    }

    /// Calls `deliver`, from another thread, with what happens to other nodes in this round: once
    /// at most, and at once if it has happened already.
    pub(crate) fn subscribe(&self, deliver: impl Fn(PeerEvent) + Send + 'static) {
        if let Some(watcher) = &self.watcher {
            watcher.subscribe(Box::new(deliver));
        }
    }

    /// What has happened to other nodes in this round.
    pub(crate) fn event(&self) -> Option<PeerEvent> {
        self.watcher.as_ref().and_then(Watcher::event)
    }

    /// Whether another attempt is left after the current one.
    pub(crate) fn restart_is_left(&self) -> bool {
        self.current
            .as_ref()
            .is_none_or(|current| current.number < self.request.max_restarts && !current.is_mixed())
    }

    /// The number of the round that comes next for this node.
    fn round_to_join(&mut self) -> Result<usize> {
        let known = self.read_round()?;
        let number = match &self.current {
            Some(current) if current.is_mixed() => return Err(Error::MixedRestart),
            Some(current) => {
                let before = current.number;
                self.see_that_it_goes_on(before)?;
                known.max(before + 1)
            }
            None => match self.read_end(known)? {
                None => known,
                Some(_) => {
                    self.see_that_it_goes_on(known)?;
                    known + 1
                }
            },
        };
        if number > self.request.max_restarts {
            return Err(Error::NoRestartLeft {
                endpoint: self.request.endpoint.to_string(),
                restarts: self.request.max_restarts,
            });
        }
        if number > known {
            // Who comes first writes it; that of the others is the same.
            let before = if known == 0 {
                String::new()
            } else {
                known.to_string()
            };
            let text = number.to_string();
            self.store
                .compare_set(keys::ROUND, before.as_bytes(), text.as_bytes())
                .map_err(|source| self.broken(source))?;
        }
        Ok(number)
    }

    fn read_round(&mut self) -> Result<usize> {
        let text = self.store.get(keys::ROUND);
        let text = text.map_err(|source| self.broken(source))?;
        text.map_or(Ok(0), |text| parse(keys::ROUND, &text))
    }

    /// Waits for a place in a job that has enough nodes.
    fn wait_for_end(
        &mut self,
        round: usize,
        patience: &mut Patience,
        tell: &mut Tell<'_>,
    ) -> Result<()> {
        let end = keys::end(round);
        loop {
            let ended = self.store.wait(&[&end], SLICE);
            if ended.map_err(|source| self.broken(source))? {
                return Ok(());
            }
            let num_nodes = self.request.num_nodes.get();
            self.wait_on(patience, tell, || State::Full { num_nodes })?;
        }
    }

    /// Gives up, says how things are, or does nothing, as it is time for.
    fn wait_on(
        &self,
        patience: &mut Patience,
        tell: &mut Tell<'_>,
        state: impl FnOnce() -> State,
    ) -> Result<()> {
        let (over, due) = (patience.is_over(), patience.is_due());
        if !over && !due {
            return Ok(());
        }
        let waiting = Waiting {
            endpoint: self.request.endpoint.to_string(),
            elapsed: patience.elapsed(),
            limit: patience.limit(),
            state: state(),
        };
        match over {
            true => Err(Error::timed_out(waiting)),
            false => {
                tell(&waiting);
                Ok(())
            }
        }
    }

    fn broken(&self, source: StoreError) -> Error {
        match source {
            StoreError::Interrupted => Error::Interrupted,
            source => Error::Store {
                endpoint: self.request.endpoint.to_string(),
                source,
            },
        }
    }
}

fn json<T: serde::Serialize>(key: &str, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|source| garbled(key, source))
}

fn parse<T: serde::de::DeserializeOwned>(key: &str, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|source| garbled(key, source))
}

fn garbled(key: &str, source: serde_json::Error) -> Error {
    Error::Garbled {
        key: key.to_owned(),
        source,
    }
}
