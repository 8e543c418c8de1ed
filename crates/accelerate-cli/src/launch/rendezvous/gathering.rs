//! The nodes come together for a round.
//!
//! Each writes who it is. The node that keeps the store looks at all of them: as soon as two
//! contradict each other it refuses the round, and as soon as all are there it begins. Either
//! verdict is written once, and all read the same. Where Python's launcher keeps the store, there
//! is no verdict, and each node looks for itself.

use std::{num::NonZeroUsize, time::Duration};

use super::{
    Backend, Nodes, SLICE, Tell,
    agreement::{self, Member, Seat, Verdict},
    error::{Error, Result},
    json, keys, parse,
    present::{Present, RoleInfo},
    round::{self, Ranks},
    waiting::Patience,
};

/// How often the node that keeps the store looks for launchers of Python, which do not knock.
const LOOK: Duration = Duration::from_millis(50);

/// How many arrivals are looked at in a round.
const MOST_ARRIVALS: usize = 1 << 16;

/// What came of it: the number of this node among all seats.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) node: usize,
    pub(super) seats: Vec<Seat>,
}

impl Nodes {
    /// Comes to a round and waits for the others; `None` if it has begun without this node, and
    /// there may be a place in the next.
    pub(super) fn gather(
        &mut self,
        round: usize,
        local_world_size: NonZeroUsize,
        patience: &mut Patience,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Gathered>> {
        let index = self.arrive(round, local_world_size)?;
        let result = self.until_verdict(round, patience, tell);
        if let Err(error) = &result {
            self.give_up_for_all(round, error);
        }
        if !matches!(result, Ok(Some(_))) {
            let gone = keys::gone(round, index);
            let _ = self
                .store
                .uninterrupted(|store| store.set_once(&gone, b"1"));
        }
        result
    }

    fn static_rank(&self) -> Option<usize> {
        match self.request.backend {
            Backend::Static { node_rank } => Some(node_rank),
            Backend::C10d { .. } => None,
        }
    }

    /// Writes who this node is; returns its place in the order of arrival.
    fn arrive(&mut self, round: usize, local_world_size: NonZeroUsize) -> Result<usize> {
        let before = self.current.as_ref().map(|current| current.node);
        let member = Member {
            token: self.token.clone(),
            host: self.request.host.clone(),
            address: self.address()?,
            node_rank: self.static_rank().or(before),
            keeps_store: self.server.is_some(),
            role: self.request.role.clone(),
            local_world_size: local_world_size.get(),
            view: self.request.view.clone(),
        };
        let place = self.store.add(&keys::joined(round), 1);
        let place = place.map_err(|source| self.broken(source))?;
        let index = usize::try_from(place - 1).unwrap_or(0);
        self.sign_will("gathering", &keys::gone(round, index), "1".to_owned())?;
        let key = keys::member(round, index);
        let text = json(&key, &member)?;
        let set = self.store.set(&key, &text);
        set.map_err(|source| self.broken(source))?;
        if let Some(rank) = self.static_rank()
            && round == 0
        {
            self.say_ranks(rank, &member)?;
        }
        Ok(index)
    }

    /// Says what Python's launcher wants to know. It comes last, so that everybody who sees it sees
    /// too that this is no launcher of Python.
    fn say_ranks(&mut self, rank: usize, member: &Member) -> Result<()> {
        let info = RoleInfo {
            role: member.role.clone(),
            rank,
            local_world_size: member.local_world_size,
            accelerate: true,
        };
        let key = role_info(rank);
        let text = json(&key, &info)?;
        let set = self.store.set(&key, &text);
        set.map_err(|source| self.broken(source))
    }

    /// Where ranks of other nodes reach this one. Nothing is looked up for that.
    fn address(&self) -> Result<String> {
        if let Some(address) = &self.request.local_address {
            return Ok(address.clone());
        }
        if self.server.is_some() {
            return Ok(self.request.endpoint.host.clone());
        }
        let address = self.store.local_address();
        let address = address.map_err(|source| Error::System {
            doing: "find out the address of this machine",
            source,
        })?;
        Ok(address.ip().to_canonical().to_string())
    }

    fn until_verdict(
        &mut self,
        round: usize,
        patience: &mut Patience,
        tell: &mut Tell<'_>,
    ) -> Result<Option<Gathered>> {
        let mut present = Present::default();
        loop {
            if self.server.is_some() {
                self.look_around(round, &mut present)?;
                if let Some(verdict) =
                    present.judge(self.request.num_nodes.get(), self.static_rank().is_some())
                {
                    self.publish(round, &verdict)?;
                }
            }
            if let Some(verdict) = self.wait_for_verdict(round, present.members.len())? {
                return self.obey(verdict, patience);
            }
            if let Some(gathered) = self.obey_python(round, &mut present, patience)? {
                return Ok(Some(gathered));
            }
            if patience.is_close() {
                self.look_around(round, &mut present)?;
            }
            let (num_nodes, by_rank) = (self.request.num_nodes.get(), self.static_rank().is_some());
            let state = || present.state(num_nodes, by_rank);
            self.wait_on(patience, tell, state)?;
        }
    }

    /// Waits a little for the verdict; or, where it is this node that gives it, for another node
    /// after the first `known`.
    fn wait_for_verdict(&mut self, round: usize, known: usize) -> Result<Option<Verdict>> {
        let key = keys::verdict(round);
        let (next, limit) = match self.server {
            None => (key.clone(), SLICE),
            Some(_) if round == 0 && self.static_rank().is_some() => {
                (keys::member(round, known), LOOK)
            }
            Some(_) => (keys::member(round, known), SLICE),
        };
        let store = &mut self.store;
        let text = store.exist(&[&key]).and_then(|given| {
            let given = given || (store.wait(&[&next], limit)? && next == key);
            if given { store.get(&key) } else { Ok(None) }
        });
        let text = text.map_err(|source| self.broken(source))?;
        text.map(|text| parse(&key, &text)).transpose()
    }

    /// Lets the others end too, and know why, if it is this node that gives the verdict.
    fn give_up_for_all(&mut self, round: usize, error: &Error) {
        let verdict = match error {
            _ if self.server.is_none() => return,
            Error::Missing {
                joined, missing, ..
            } => Verdict::GivenUp {
                joined: joined.clone(),
                missing: missing.clone(),
            },
            Error::Interrupted => Verdict::Stopped {
                node: agreement::label(self.static_rank(), &self.request.host),
            },
            _ => return,
        };
        if let Ok(text) = json("", &verdict) {
            let key = keys::verdict(round);
            // Without it they wait until their own limits.
            let _ = self
                .store
                .uninterrupted(|store| store.set_once(&key, &text));
        }
    }

    /// Learns who has come or gone since the last time.
    fn look_around(&mut self, round: usize, present: &mut Present) -> Result<()> {
        let looked = self
            .members(round, present)
            .and_then(|()| match self.static_rank() {
                Some(_) if round == 0 => self.agents(present),
                _ => Ok(()),
            });
        looked.map_err(|source| self.broken(source))
    }

    fn members(&mut self, round: usize, present: &mut Present) -> Result<(), super::StoreError> {
        let count = self.store.get(&keys::joined(round))?.unwrap_or_default();
        let count = std::str::from_utf8(&count).ok();
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        present.members.resize(count.min(MOST_ARRIVALS), None);
        for (index, member) in present.members.iter_mut().enumerate() {
            let gone = self.store.exist(&[&keys::gone(round, index)])?;
            if gone {
                *member = None;
            } else if member.is_none() {
                let text = self.store.get(&keys::member(round, index))?;
                *member = text.and_then(|text| Present::read_member(&text));
            }
        }
        Ok(())
    }

    /// Looks for launchers of Python in the places that none of ours has.
    fn agents(&mut self, present: &mut Present) -> Result<(), super::StoreError> {
        present.agents.clear();
        for rank in 0..self.request.num_nodes.get() {
            let gone = format!("{}{rank}", keys::AGENT_GONE);
            if present.holder(rank).is_some() || self.store.exist(&[&gone])? {
                continue;
            }
            let info = self.store.get(&role_info(rank))?;
            let info = info.and_then(|info| Present::read_agent(&info, rank));
            present.agents.extend(info);
        }
        Ok(())
    }

    fn publish(&mut self, round: usize, verdict: &Verdict) -> Result<()> {
        let key = keys::verdict(round);
        let text = json(&key, verdict)?;
        let set = self.store.set_once(&key, &text);
        set.map_err(|source| self.broken(source))?;
        let Verdict::Go { seats } = verdict else {
            return Ok(());
        };
        if seats.iter().all(|seat| seat.token.is_some()) {
            return Ok(());
        }
        let mut assigned = Vec::with_capacity(seats.len());
        for node in 0..seats.len() {
            let Ranks {
                base,
                world_size,
                role_base,
                role_size,
            } = round::ranks(seats, node);
            let key = format!("{}{node}", keys::ASSIGNED_RANKS);
            let text = json(&key, &[base, world_size, role_base, role_size])?;
            assigned.push((key, text));
        }
        let set = self.store.set_all(&assigned);
        set.map_err(|source| self.broken(source))
    }

    fn obey(&self, verdict: Verdict, patience: &Patience) -> Result<Option<Gathered>> {
        let seats = match verdict {
            Verdict::GivenUp { joined, missing } => {
                return Err(Error::Missing {
                    endpoint: self.request.endpoint.to_string(),
                    waited: patience.elapsed(),
                    num_nodes: self.request.num_nodes.get(),
                    joined,
                    missing,
                });
            }
            Verdict::Stopped { node } => {
                return Err(Error::JobOver {
                    endpoint: self.request.endpoint.to_string(),
                    why: format!("{node} was told to end"),
                });
            }
            Verdict::Refused { conflicts } => return Err(Error::Disagreement { conflicts }),
            Verdict::Go { seats } => seats,
        };
        let ours = |seat: &Seat| seat.token.as_deref() == Some(&self.token);
        if let Some(node) = seats.iter().position(ours) {
            return Ok(Some(Gathered { node, seats }));
        }
        match self.static_rank() {
            None => Ok(None),
            Some(rank) => Err(Error::RankTaken {
                endpoint: self.request.endpoint.to_string(),
                rank,
                holder: match seats.get(rank) {
                    Some(seat) => seat.host.clone(),
                    None => "no node".to_owned(),
                },
            }),
        }
    }

    /// Takes what a launcher of Python has assigned, if one keeps the store.
    fn obey_python(
        &mut self,
        round: usize,
        present: &mut Present,
        patience: &Patience,
    ) -> Result<Option<Gathered>> {
        let Some(rank) = self.static_rank() else {
            return Ok(None);
        };
        if round != 0 || self.server.is_some() {
            return Ok(None);
        }
        let mine = format!("{}{rank}", keys::ASSIGNED_RANKS);
        let assigned = self
            .store
            .exist(&[&mine])
            .and_then(|assigned| Ok(assigned && !self.store.exist(&[keys::HOST])?));
        if !assigned.map_err(|source| self.broken(source))? {
            return Ok(None);
        }
        // All nodes are here: those of ours have said so before Python could count them.
        self.look_around(round, present)?;
        match present.judge(self.request.num_nodes.get(), true) {
            Some(verdict) => self.obey(verdict, patience),
            None => Ok(None),
        }
    }
}

fn role_info(rank: usize) -> String {
    format!("{}{rank}", keys::ROLE_INFO)
}
