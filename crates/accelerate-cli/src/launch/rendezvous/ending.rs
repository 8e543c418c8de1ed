//! A round or the job ends: who says so, and who hears it.

use std::time::{Duration, Instant};

use super::{
    Current, Nodes, SLICE, agreement,
    error::{Error, Result},
    json, keys, parse,
    round::{End, Failure, PeerEvent},
    store::client::StoreError,
    watcher::LEFT,
};

/// How often the node that keeps the store looks whether it is still needed.
const NEXT_LOOK: Duration = Duration::from_millis(5);

/// How the wait at the end of a job went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// All nodes have succeeded, or nobody is left who could tell.
    Passed,
    /// Another node has failed or is lost.
    Broken(PeerEvent),
    /// Others still run. This node has succeeded all the same.
    TimedOut,
    Interrupted,
}

impl Nodes {
    /// Tells the other nodes that the ranks of this one have failed, or that it is to end. If
    /// another was first, its failure stands.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) fn report_failure(&mut self, failure: Failure) -> Result<()> {
        let Some(current) = &self.current else {
            return Ok(());
        };
        let end = End::Failed {
            node: current.node,
            host: self.request.host.clone(),
            failure,
        };
        self.write_end(current.number, &end)
    }

    /// Tells the other nodes that the ranks of this one have succeeded.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) fn report_success(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if std::mem::replace(&mut current.succeeded, true) {
            return Ok(());
        }
        let (number, all) = (current.number, current.seats.len());
        let mixed = current.is_mixed();
        let counter = match mixed {
            true => keys::NUM_DONE.to_owned(),
            false => keys::succeeded(number),
        };
        let done = self.store.add(&counter, 1);
        let done = done.map_err(|source| self.broken(source))?;
        if usize::try_from(done) != Ok(all) {
            return Ok(());
        }
        if mixed {
            let set = self.store.set(keys::ALL_DONE, b"all");
            set.map_err(|source| self.broken(source))?;
        }
        self.write_end(number, &End::Done)
    }

    /// Waits until all nodes have succeeded, as this one has, for `limit` at most.
    pub(crate) fn exit_barrier(&mut self, limit: Duration) -> Barrier {
        let started = Instant::now();
        if self.report_success().is_err() || self.watcher.is_none() {
            return Barrier::Passed;
        }
        let mixed = self.current.as_ref().is_some_and(Current::is_mixed);
        loop {
            let left = limit.saturating_sub(started.elapsed());
            // A launcher of Python that keeps the store ends as soon as all are done: then there
            // is no time to look again.
            let done = match mixed {
                true => self.store.wait(&[keys::ALL_DONE], SLICE.min(left)),
                false => Ok(false),
            };
            let pause = if mixed { Duration::ZERO } else { left };
            let watcher = self.watcher.as_ref();
            let event = watcher.and_then(|watcher| watcher.wait(pause, &self.interrupt));
            return match (done, event) {
                (Ok(true), _) => Barrier::Passed,
                (_, Some(PeerEvent::Finished | PeerEvent::Unwatched)) => Barrier::Passed,
                (_, Some(PeerEvent::StoreLost { .. })) | (Err(StoreError::Lost { .. }), None)
                    if mixed =>
                {
                    Barrier::Passed
                }
                (_, Some(event)) => Barrier::Broken(event),
                _ if self.interrupt.is_set() => Barrier::Interrupted,
                _ if started.elapsed() >= limit => Barrier::TimedOut,
                _ => continue,
            };
        }
    }

    /// Says goodbye, so that nobody takes the end of this node for a crash. The node that keeps
    /// the store waits a little until the others have left.
    pub(crate) fn leave(mut self) {
        self.watcher = None;
        let current = self.current.take();
        if let Some(current) = current.as_ref().filter(|current| current.succeeded) {
            let _ = self.store.set(&keys::beat(&self.token), LEFT);
            if self.server.is_some() {
                let _ = self.write_end(current.number, &End::Closed);
            }
        }
        self.take_back_wills();
        self.linger(current.as_ref(), self.request.timing.linger);
    }

    /// An error if the job does not go on after this round.
    pub(super) fn see_that_it_goes_on(&mut self, round: usize) -> Result<()> {
        let over = match self.read_end(round)? {
            Some(End::Done | End::Closed) => Some("all its nodes have succeeded".to_owned()),
            Some(End::Failed {
                node,
                host,
                failure,
            }) if !failure.cause.allows_restart() => {
                let node = agreement::label(Some(node), &host);
                Some(format!("{node} was told to end"))
            }
            _ => None,
        };
        match over {
            None => Ok(()),
            Some(why) => Err(Error::JobOver {
                endpoint: self.request.endpoint.to_string(),
                why,
            }),
        }
    }

    pub(super) fn read_end(&mut self, round: usize) -> Result<Option<End>> {
        let key = keys::end(round);
        let text = self.store.get(&key);
        let text = text.map_err(|source| self.broken(source))?;
        text.map(|text| parse(&key, &text)).transpose()
    }

    pub(super) fn write_end(&mut self, round: usize, end: &End) -> Result<()> {
        let key = keys::end(round);
        let text = json(&key, end)?;
        // The interrupt that makes us say this must not keep us from it.
        let result = self
            .store
            .uninterrupted(|store| store.set_once(&key, &text));
        result.map(drop).map_err(|source| self.broken(source))
    }

    pub(super) fn take_back_will(&mut self, purpose: &str) -> Result<()> {
        let place = keys::will(&self.token, purpose);
        let deleted = self.store.uninterrupted(|store| store.delete(&place));
        deleted.map(drop).map_err(|source| self.broken(source))
    }

    pub(super) fn take_back_wills(&mut self) {
        // Without a store there is nobody to be told.
        let _ = self.take_back_will("gathering");
        let _ = self.take_back_will("round");
    }

    /// Gives others the time to read the last news, if this node keeps the store: until they have
    /// hung up, or, in a round, until all know how it ended.
    pub(super) fn linger(&mut self, round: Option<&Current>, limit: Duration) {
        let until = Instant::now() + limit;
        while self.is_needed(round) && Instant::now() < until {
            std::thread::sleep(NEXT_LOOK);
        }
    }

    fn is_needed(&mut self, round: Option<&Current>) -> bool {
        // Our own connection is one of them.
        let others_are_here = self
            .server
            .as_ref()
            .is_some_and(|server| server.connections() > 1);
        let Some(current) = round.filter(|current| others_are_here && !current.is_mixed()) else {
            return others_are_here;
        };
        if !self
            .store
            .exist(&[&keys::end(current.number)])
            .unwrap_or(false)
        {
            // There is no news.
            return false;
        }
        let count = self.store.get(&keys::heard(current.number)).ok().flatten();
        let count = count.and_then(|count| String::from_utf8(count).ok()?.parse().ok());
        count.unwrap_or(0) + 1 < current.seats.len()
    }
}
