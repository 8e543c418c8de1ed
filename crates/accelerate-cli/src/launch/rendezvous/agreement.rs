//! Do the nodes that came want the same job?

use std::{collections::BTreeSet, fmt};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// What must be the same on all nodes: name of the setting to its value as text.
///
/// As names and values, so that launchers of different versions understand each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeView(IndexMap<String, String>);

impl NodeView {
    /// Adds a setting by the name that the user knows.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds a setting unless there is one of this name.
    #[must_use]
    pub(crate) fn with_new(mut self, name: &str, value: impl fmt::Display) -> Self {
        let entry = self.0.entry(name.to_owned());
        entry.or_insert_with(|| value.to_string());
        self
    }

    /// The number of all processes, if it is to be checked.
    fn num_processes(&self) -> Option<usize> {
        self.0.get(NUM_PROCESSES)?.parse().ok()
    }
}

/// The setting of a view that is compared with the sum over the nodes too.
const NUM_PROCESSES: &str = "num_processes";

/// A node that came to a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// Different for every launcher that ever ran.
    pub(super) token: String,
    /// Name of the machine, to be shown.
    pub(super) host: String,
    /// Address at which other nodes reach it.
    pub(super) address: String,
    /// Given by the user, or that of the round before.
    pub(super) node_rank: Option<usize>,
    pub(super) keeps_store: bool,
    pub(super) role: String,
    pub(super) local_world_size: usize,
    pub(super) view: NodeView,
}

impl Member {
    /// How this node is called in messages.
    pub(super) fn label(&self) -> String {
        label(self.node_rank, &self.host)
    }
}

/// How a node is called in messages.
pub(super) fn label(node_rank: Option<usize>, host: &str) -> String {
    match node_rank {
        Some(rank) => format!("node {rank} ({host})"),
        None => host.to_owned(),
    }
}

/// A node that takes part in a round; its place in the list is its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seat {
    /// `None` for a launcher of Python.
    pub(super) token: Option<String>,
    pub(super) host: String,
    pub(super) address: String,
    pub(super) role: String,
    pub(super) local_world_size: usize,
}

/// What came of a round before it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Go {
        seats: Vec<Seat>,
    },
    Refused {
        conflicts: Vec<Conflict>,
    },
    /// The node that keeps the store has waited long enough.
    GivenUp {
        joined: Vec<String>,
        missing: Vec<String>,
    },
    /// The node that keeps the store was told to end.
    Stopped {
        node: String,
    },
}

/// Something that nodes see differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Conflict {
    /// A setting: each value, and who has it.
    Setting {
        name: String,
        values: IndexMap<String, Vec<String>>,
    },
    /// Two nodes have one number.
    Rank { rank: usize, hosts: Vec<String> },
    /// A node has a number beyond the last.
    RankTooHigh {
        rank: usize,
        host: String,
        num_nodes: usize,
    },
    /// The processes of all nodes do not add up.
    Total { expected: usize, found: Vec<usize> },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { name, values } => {
                write!(f, "`{name}` is ")?;
                for (index, (value, nodes)) in values.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    let value = if value.is_empty() { "not set" } else { value };
                    write!(f, "{comma}{value} on {}", nodes.join(" and "))?;
                }
                Ok(())
            }
            Self::Rank { rank, hosts } => {
                write!(
                    f,
                    "`machine_rank` {rank} is given to {}",
                    hosts.join(" and ")
                )
            }
            Self::RankTooHigh {
                rank,
                host,
                num_nodes,
            } => write!(
                f,
                "`machine_rank` {rank} on {host} is too high: expected less than `num_machines` \
                 ({num_nodes})"
            ),
            Self::Total { expected, found } => {
                let counts: Vec<_> = found.iter().map(usize::to_string).collect();
                let sum: usize = found.iter().sum();
                write!(
                    f,
                    "`num_processes` is {expected}, but the nodes start {} = {sum}",
                    counts.join(" + ")
                )
            }
        }
    }
}

/// What speaks against these nodes working together, whoever is still to come.
pub(super) fn conflicts(
    members: &[&Member],
    num_nodes: usize,
    ranks_are_given: bool,
) -> Vec<Conflict> {
    let mut members = members.to_vec();
    members.sort_by_key(|member| member.node_rank.unwrap_or(usize::MAX));
    let mut found = settings(&members);
    if !ranks_are_given {
        return found;
    }
    let ranks: BTreeSet<_> = members.iter().filter_map(|node| node.node_rank).collect();
    for rank in ranks {
        let holders = members.iter().filter(|node| node.node_rank == Some(rank));
        let hosts: Vec<_> = holders.map(|node| node.host.clone()).collect();
        if hosts.len() > 1 {
            found.push(Conflict::Rank { rank, hosts });
        } else if rank >= num_nodes {
            let host = hosts.concat();
            found.push(Conflict::RankTooHigh {
                rank,
                host,
                num_nodes,
            });
        }
    }
    found
}

fn settings(members: &[&Member]) -> Vec<Conflict> {
    let mut names: Vec<&String> = Vec::new();
    for name in members.iter().flat_map(|node| node.view.0.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let differ = |name: &String| {
        let mut values: IndexMap<String, Vec<String>> = IndexMap::new();
        for node in members {
            let value = node.view.0.get(name).cloned().unwrap_or_default();
            values.entry(value).or_default().push(node.label());
        }
        (values.len() > 1).then(|| Conflict::Setting {
            name: name.clone(),
            values,
        })
    };
    let found: Vec<_> = names.into_iter().filter_map(differ).collect();
    // What one node alone has follows from another difference, if there is one.
    let is_cause = |conflict: &Conflict| match conflict {
        Conflict::Setting { values, .. } => !values.contains_key(""),
        _ => true,
    };
    match found.iter().any(is_cause) {
        true => found.into_iter().filter(is_cause).collect(),
        false => found,
    }
}

/// Whether the processes of all nodes are as many as their views say.
pub(super) fn total(members: &[&Member], seats: &[Seat]) -> Option<Conflict> {
    let expected = members.first()?.view.num_processes()?;
    let found: Vec<_> = seats.iter().map(|seat| seat.local_world_size).collect();
    (found.iter().sum::<usize>() != expected).then_some(Conflict::Total { expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: usize, host: &str, view: NodeView) -> Member {
        Member {
            token: host.to_owned(),
            host: host.to_owned(),
            address: "10.0.0.1".to_owned(),
            node_rank: Some(rank),
            keeps_store: rank == 0,
            role: "default".to_owned(),
            local_world_size: 1,
            view,
        }
    }

    fn said(members: &[Member], num_nodes: usize) -> Vec<String> {
        let members: Vec<_> = members.iter().collect();
        let found = conflicts(&members, num_nodes, true);
        found.iter().map(Conflict::to_string).collect()
    }

    #[test]
    fn a_setting_that_differs_is_shown_with_who_says_what() {
        let view = |n: usize| {
            NodeView::default()
                .with("num_machines", n)
                .with("role", "x")
        };
        let nodes = [
            member(0, "a", view(2)),
            member(1, "b", view(3)),
            member(2, "c", view(3)),
        ];
        assert_eq!(
            said(&nodes, 3),
            ["`num_machines` is 2 on node 0 (a), 3 on node 1 (b) and node 2 (c)"]
        );
        let nodes = [member(0, "a", view(2)), member(1, "b", NodeView::default())];
        assert_eq!(said(&nodes, 2).len(), 2);
        assert!(said(&nodes, 2)[1].contains("not set on node 1 (b)"));
    }

    #[test]
    fn what_follows_from_another_difference_is_left_out() {
        let view = |strategy: &str| NodeView::default().with("strategy", strategy);
        let nodes = [
            member(0, "a", view("FSDP").with("fsdp_version", 2)),
            member(1, "b", view("plain")),
        ];
        assert_eq!(
            said(&nodes, 2),
            ["`strategy` is FSDP on node 0 (a), plain on node 1 (b)"]
        );
    }

    #[test]
    fn ranks_are_below_the_number_of_nodes_and_different() {
        let node = |rank, host| member(rank, host, NodeView::default());
        assert!(said(&[node(0, "a"), node(1, "b")], 2).is_empty());
        assert_eq!(
            said(&[node(0, "a"), node(1, "b"), node(1, "c")], 2),
            ["`machine_rank` 1 is given to b and c"]
        );
        assert!(said(&[node(0, "a"), node(2, "b")], 2)[0].contains("too high"));
    }

    #[test]
    fn processes_add_up() {
        let node = member(0, "a", NodeView::default().with("num_processes", 4));
        let seat = |local_world_size| Seat {
            token: None,
            host: String::new(),
            address: String::new(),
            role: String::new(),
            local_world_size,
        };
        assert_eq!(total(&[&node], &[seat(1), seat(3)]), None);
        let conflict = total(&[&node], &[seat(1), seat(2)]).unwrap().to_string();
        assert_eq!(
            conflict,
            "`num_processes` is 4, but the nodes start 1 + 2 = 3"
        );
    }
}
