//! Who has come to a round, and what follows from it.

use serde::{Deserialize, Serialize};

use super::{
    agreement::{self, Member, Seat, Verdict},
    waiting::State,
};

/// What is shown in the place of the name of a machine that Python's launcher does not tell.
const PYTHON: &str = "torchrun";

/// No machine runs more processes than this.
const MOST_PROCESSES: usize = 1 << 20;

/// As Python's launcher describes a node, with one more field that it does not mind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RoleInfo {
    pub(super) role: String,
    pub(super) rank: usize,
    pub(super) local_world_size: usize,
    /// Whether the launcher is one of ours.
    #[serde(default)]
    pub(super) accelerate: bool,
}

/// Who is here.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// In order of arrival; `None` for who is gone, or not known yet.
    pub(super) members: Vec<Option<Member>>,
    /// Launchers of Python.
    pub(super) agents: Vec<RoleInfo>,
}

impl Present {
    /// Reads what a node says of itself; `None` if that cannot be.
    pub(super) fn read_member(text: &[u8]) -> Option<Member> {
        let member: Member = serde_json::from_slice(text).ok()?;
        (1..=MOST_PROCESSES)
            .contains(&member.local_world_size)
            .then_some(member)
    }

    /// Reads what Python's launcher says of node `rank`; `None` if that cannot be, or if it was one
    /// of ours.
    pub(super) fn read_agent(text: &[u8], rank: usize) -> Option<RoleInfo> {
        let info: RoleInfo = serde_json::from_slice(text).ok()?;
        let plausible = (1..=MOST_PROCESSES).contains(&info.local_world_size);
        (plausible && info.rank == rank && !info.accelerate).then_some(info)
    }

    /// The node of ours that has this number.
    pub(super) fn holder(&self, rank: usize) -> Option<&Member> {
        let mut members = self.members.iter().flatten();
        members.find(|member| member.node_rank == Some(rank))
    }

    fn agent(&self, rank: usize) -> Option<&RoleInfo> {
        self.agents.iter().find(|agent| agent.rank == rank)
    }

    fn ours(&self) -> Vec<&Member> {
        self.members.iter().flatten().collect()
    }

    /// Whether the round can begin, or never will; `None` while nodes are missing.
    pub(super) fn judge(&self, num_nodes: usize, ranks_are_given: bool) -> Option<Verdict> {
        let members = self.ours();
        let mut conflicts = agreement::conflicts(&members, num_nodes, ranks_are_given);
        if conflicts.is_empty() {
            let seats = match ranks_are_given {
                true => self.seats_by_rank(num_nodes)?,
                false => seats_by_arrival(&members, num_nodes)?,
            };
            conflicts.extend(agreement::total(&members, &seats));
            if conflicts.is_empty() {
                return Some(Verdict::Go { seats });
            }
        }
        Some(Verdict::Refused { conflicts })
    }

    /// Who has joined and who is missing, in words.
    pub(super) fn state(&self, num_nodes: usize, ranks_are_given: bool) -> State {
        let agents = self.agents.iter().map(|agent| (Some(agent.rank), PYTHON));
        let ours = self.members.iter().flatten();
        let mut joined: Vec<_> = ours
            .map(|member| (member.node_rank, member.host.as_str()))
            .chain(agents)
            .collect();
        joined.sort_unstable();
        let joined: Vec<_> = joined
            .into_iter()
            .map(|(rank, host)| agreement::label(rank, host))
            .collect();
        let is_missing = |rank: &usize| self.holder(*rank).is_none() && self.agent(*rank).is_none();
        let missing = match num_nodes.saturating_sub(joined.len()) {
            _ if ranks_are_given => (0..num_nodes)
                .filter(is_missing)
                .map(|rank| format!("node {rank}"))
                .collect(),
            0 => Vec::new(),
            1 => vec!["1 more node".to_owned()],
            more => vec![format!("{more} more nodes")],
        };
        State::Gathering {
            num_nodes,
            joined,
            missing,
        }
    }

    fn seats_by_rank(&self, num_nodes: usize) -> Option<Vec<Seat>> {
        let seat = |rank| match (self.holder(rank), self.agent(rank)) {
            (Some(member), _) => Some(seat(member)),
            (None, Some(agent)) => Some(Seat {
                token: None,
                host: PYTHON.to_owned(),
                address: String::new(),
                role: agent.role.clone(),
                local_world_size: agent.local_world_size,
            }),
            (None, None) => None,
        };
        (0..num_nodes).map(seat).collect()
    }
}

/// Who keeps the store is first: others can reach it. Who had a number keeps its place as far as
/// possible.
fn seats_by_arrival(members: &[&Member], num_nodes: usize) -> Option<Vec<Seat>> {
    let mut order = members.to_vec();
    order.sort_by_key(|member| (!member.keeps_store, member.node_rank.unwrap_or(usize::MAX)));
    let taken = order.get(..num_nodes)?;
    Some(taken.iter().map(|member| seat(member)).collect())
}

fn seat(member: &Member) -> Seat {
    Seat {
        token: Some(member.token.clone()),
        host: member.host.clone(),
        address: member.address.clone(),
        role: member.role.clone(),
        local_world_size: member.local_world_size,
    }
}
