//! A round begins: from here on nodes depend on each other.

use std::time::Instant;

use super::{
    Current, Nodes, Reservation, SLICE, Tell, agreement,
    error::{Error, Result},
    json, keys, parse,
    round::{self, End, MeetingPoint, Round},
    store::{client::Dial, wills::Will},
    waiting::{Patience, State},
    watcher::{Watched, Watcher},
};

impl Nodes {
    /// Starts a round in which this node has a seat; `None` if it has ended already.
    pub(super) fn begin(
        &mut self,
        patience: &mut Patience,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Round>> {
        let Some(current) = self.current.clone() else {
            return Ok(None);
        };
        self.sign_will_for(&current)?;
        let ranks = round::ranks(&current.seats, current.node);
        let Some((meeting_point, reservation)) = self.meeting_point(&current, patience, tell)?
        else {
            return Ok(None);
        };
        self.watcher = Some(self.start_watcher(&current)?);
        let counts = current.seats.iter().map(|seat| seat.local_world_size);
        let hosts = current.seats.iter().map(|seat| seat.host.clone());
        Ok(Some(Round {
            number: current.number,
            node_rank: current.node,
            num_nodes: current.seats.len(),
            base_rank: ranks.base,
            world_size: ranks.world_size,
            base_role_rank: ranks.role_base,
            role_world_size: ranks.role_size,
            counts: counts.collect(),
            hosts: hosts.collect(),
            meeting_point,
            reservation,
        }))
    }

    /// From here on the end of this node ends the round.
    pub(super) fn sign_will_for(&mut self, current: &Current) -> Result<()> {
        let end = End::Lost {
            node: current.node,
            host: self.request.host.clone(),
        };
        let key = keys::end(current.number);
        let value = String::from_utf8_lossy(&json(&key, &end)?).into_owned();
        self.sign_will("round", &key, value)?;
        self.take_back_will("gathering")
    }

    pub(super) fn sign_will(&mut self, purpose: &str, key: &str, value: String) -> Result<()> {
        let will = Will {
            key: self.store.whole_key(key),
            value,
        };
        let place = keys::will(&self.token, purpose);
        let text = json(&place, &will)?;
        let set = self.store.set(&place, &text);
        set.map_err(|source| self.broken(source))
    }

    /// Where the ranks meet: the node of rank 0 decides. `None` if the round has ended.
    pub(super) fn meeting_point(
        &mut self,
        current: &Current,
        patience: &mut Patience,
        tell: &mut Tell<'_>,
    ) -> Result<Option<(MeetingPoint, Option<Reservation>)>> {
        if current.is_mixed() {
            // As Python's launcher does it: the store serves the ranks too.
            let endpoint = &self.request.endpoint;
            let point = MeetingPoint {
                address: endpoint.host.clone(),
                port: endpoint.port.get(),
                served_by_launcher: true,
            };
            return Ok(Some((point, None)));
        }
        let key = keys::meeting_point(current.number);
        if current.node == 0 {
            let reservation = Reservation::new(0).map_err(|error| Error::NoFreePort {
                source: Box::new(error),
            })?;
            let point = MeetingPoint {
                address: current.seats[0].address.clone(),
                port: reservation.port().get(),
                served_by_launcher: false,
            };
            let text = json(&key, &point)?;
            let set = self.store.set(&key, &text);
            set.map_err(|source| self.broken(source))?;
            return Ok(Some((point, Some(reservation))));
        }
        loop {
            let there = self.store.wait(&[&key], SLICE);
            if there.map_err(|source| self.broken(source))? {
                let text = self.store.get(&key);
                let text = text.map_err(|source| self.broken(source))?;
                let point = parse(&key, &text.unwrap_or_default())?;
                return Ok(Some((point, None)));
            }
            if self.read_end(current.number)?.is_some() {
                return Ok(None);
            }
            let node = agreement::label(Some(0), &current.seats[0].host);
            self.wait_on(patience, tell, || State::NoMeetingPoint { node })?;
        }
    }

    pub(super) fn start_watcher(&self, current: &Current) -> Result<Watcher> {
        let timing = self.request.timing;
        let dial = Dial {
            prefix: self.request.run_id.clone(),
            patience: timing.answer.min(timing.beat * timing.misses),
            interrupt: None,
        };
        let until = Instant::now() + timing.answer;
        let store = dial.until(&self.reached_at, until, &mut |_| {});
        let store = store.map_err(|source| self.broken(source))?;
        let watched = Watched {
            round: current.number,
            node: current.node,
            seats: current.seats.clone(),
            beat: timing.beat,
            misses: timing.misses,
            endpoint: self.request.endpoint.to_string(),
            keeps_store: self.server.is_some(),
        };
        Watcher::start(store, watched).map_err(|source| Error::System {
            doing: "look after the other nodes",
            source,
        })
    }
}
