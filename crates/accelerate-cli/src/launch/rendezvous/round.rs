//! One attempt of the whole job: who takes part, with which ranks, and how it ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::agreement::{Seat, label};
use crate::launch::{port::Reservation, signals};

/// This node's part in one attempt.
#[derive(Debug)]
pub(crate) struct Round {
    /// From 0; the value of `TORCHELASTIC_RESTART_COUNT`.
    pub(crate) number: usize,
    pub(crate) node_rank: usize,
    pub(crate) num_nodes: usize,
    /// Rank of the first process of this node.
    pub(crate) base_rank: usize,
    pub(crate) world_size: usize,
    /// The same among the nodes of one role.
    pub(crate) base_role_rank: usize,
    pub(crate) role_world_size: usize,
    /// How many processes each node has.
    pub(crate) counts: Vec<usize>,
    /// The names of the nodes' machines.
    pub(crate) hosts: Vec<String>,
    pub(crate) meeting_point: MeetingPoint,
    /// Keeps the port for rank 0, if that is a process of this node.
    pub(crate) reservation: Option<Reservation>,
}

/// `MASTER_ADDR` and `MASTER_PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeetingPoint {
    pub(crate) address: String,
    pub(crate) port: u16,
    /// The launcher serves it already, so that rank 0 must not:
    /// `TORCHELASTIC_USE_AGENT_STORE`.
    pub(crate) served_by_launcher: bool,
}

/// Where the ranks of a node begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ranks {
    pub(super) base: usize,
    pub(super) world_size: usize,
    pub(super) role_base: usize,
    pub(super) role_size: usize,
}

/// Gives ranks to the processes of the node at `index`: in the order of the nodes.
pub(super) fn ranks(seats: &[Seat], index: usize) -> Ranks {
    let role = seats.get(index).map(|seat| seat.role.as_str());
    let mut ranks = Ranks {
        base: 0,
        world_size: 0,
        role_base: 0,
        role_size: 0,
    };
    for (node, seat) in seats.iter().enumerate() {
        let same_role = Some(seat.role.as_str()) == role;
        let count = seat.local_world_size;
        ranks.world_size += count;
        ranks.role_size += if same_role { count } else { 0 };
        if node < index {
            ranks.base += count;
            ranks.role_base += if same_role { count } else { 0 };
        }
    }
    ranks
}

/// Why the processes of a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// A rank returned this code.
    Exit(i32),
    /// This signal killed a rank.
    Signal(i32),
    /// The launcher was asked to end by this signal: no restart.
    Stopped(i32),
    /// The launcher could not go on by itself: no restart.
    Launcher,
}

impl Cause {
    /// Whether another attempt makes sense.
    pub(crate) fn allows_restart(self) -> bool {
        matches!(self, Self::Exit(_) | Self::Signal(_))
    }
}

/// What a node tells the others when its processes have failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The first rank that failed, if one did.
    pub(crate) rank: Option<usize>,
    pub(crate) cause: Cause,
}

/// How a round ended, as it is kept in the store. The first to write it is right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// All nodes have succeeded.
    Done,
    Failed {
        node: usize,
        host: String,
        failure: Failure,
    },
    Lost {
        node: usize,
        host: String,
    },
    /// The node that keeps the store has succeeded, and does not wait any longer.
    Closed,
}

/// What happened to other nodes. There is one such event in a round at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// Processes of another node have failed.
    Failed {
        node: usize,
        host: String,
        failure: Failure,
    },
    /// Another node's launcher is gone without a word; or it is this node that the others have given
    /// up, because they did not hear of it for too long.
    Lost { node: usize, host: String },
    /// The launcher that keeps the store is gone, or cannot be reached.
    StoreLost { endpoint: String },
    /// All nodes have succeeded.
    Finished,
    /// The launcher that keeps the store has done its part and left: from here on nobody tells
    /// what becomes of other nodes.
    Unwatched,
}

impl PeerEvent {
    /// Whether the job can go on with another round, as far as other nodes are concerned.
    pub(crate) fn allows_restart(&self) -> bool {
        match self {
            Self::Failed { failure, .. } => failure.cause.allows_restart(),
            Self::Lost { .. } => true,
            Self::StoreLost { .. } | Self::Finished | Self::Unwatched => false,
        }
    }
}

impl fmt::Display for PeerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed {
                node,
                host,
                failure,
            } => write!(f, "{}: {failure}", label(Some(*node), host)),
            Self::Lost { node, host } => {
                let node = label(Some(*node), host);
                write!(f, "{node}: its launcher is gone without a word")
            }
            Self::StoreLost { endpoint } => write!(f, "the launcher at {endpoint} is gone"),
            Self::Finished => f.write_str("all nodes have succeeded"),
            Self::Unwatched => f.write_str("the launcher that keeps the store has left"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}: ")?;
        }
        match self.cause {
            Cause::Exit(code) => write!(f, "exit code {code}"),
            Cause::Signal(signal) => write!(f, "killed by {}", signals::name(signal)),
            Cause::Stopped(signal) => write!(f, "ended by {}", signals::name(signal)),
            Cause::Launcher => f.write_str("its launcher could not go on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_nodes_and_roles_are_counted_apart() {
        let seat = |role: &str, local_world_size| Seat {
            token: None,
            host: String::new(),
            address: String::new(),
            role: role.to_owned(),
            local_world_size,
        };
        let seats = [seat("a", 1), seat("b", 2), seat("a", 3)];
        let all: Vec<_> = (0..3)
            .map(|index| {
                let found = ranks(&seats, index);
                assert_eq!(found.world_size, 6);
                (found.base, found.role_base, found.role_size)
            })
            .collect();
        assert_eq!(all, [(0, 0, 4), (1, 0, 2), (3, 1, 4)]);
    }
}
