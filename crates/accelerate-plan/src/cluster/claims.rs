//! What one manager says, number by number.

use super::{ClusterError, Manager, setting};
use crate::env::Found;

/// A number that a manager may state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Rank,
    WorldSize,
    LocalRank,
    LocalWorldSize,
    NodeRank,
    Nodes,
}

impl Fact {
    const ALL: [Self; 6] = [
        Self::Rank,
        Self::WorldSize,
        Self::LocalRank,
        Self::LocalWorldSize,
        Self::NodeRank,
        Self::Nodes,
    ];

    fn meaning(self) -> &'static str {
        match self {
            Self::Rank => "the rank",
            Self::WorldSize => "the number of processes",
            Self::LocalRank => "the local rank",
            Self::LocalWorldSize => "the number of processes on this machine",
            Self::NodeRank => "the number of this machine",
            Self::Nodes => "the number of machines",
        }
    }
}

/// The numbers that one manager states, each with the variable it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claims {
    manager: Manager,
    facts: [Option<Found<usize>>; Fact::ALL.len()],
}

impl Claims {
    /// Nothing said yet.
    pub(super) fn of(manager: Manager) -> Self {
        Self {
            manager,
            facts: [None; Fact::ALL.len()],
        }
    }

    pub(super) fn manager(&self) -> Manager {
        self.manager
    }

    pub(super) fn get(&self, fact: Fact) -> Option<Found<usize>> {
        self.facts[fact as usize]
    }

    pub(super) fn set(&mut self, fact: Fact, found: Option<Found<usize>>) {
        self.facts[fact as usize] = found;
    }

    /// Whether anything is said.
    pub(super) fn is_silent(&self) -> bool {
        self.facts.iter().all(Option::is_none)
    }

    /// Whether the manager says that it started more than one task.
    pub(super) fn is_multi_task(&self) -> bool {
        self.get(Fact::WorldSize)
            .is_some_and(|world| world.value > 1)
    }

    /// Adds what `other` says and this one does not; they must not contradict each other.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), ClusterError> {
        for fact in Fact::ALL {
            match (self.get(fact), other.get(fact)) {
                (Some(left), Some(right)) if left.value != right.value => {
                    return Err(ClusterError::Disagreement {
                        meaning: fact.meaning(),
                        managers: [self.manager, other.manager],
                        left: setting(left),
                        right: setting(right),
                    });
                }
                (None, found @ Some(_)) => self.set(fact, found),
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds what follows from the rest: on one machine, local numbers are those of the job.
    pub(super) fn complete(&mut self) {
        let on_one_machine = self.get(Fact::Nodes).is_some_and(|nodes| nodes.value == 1);
        if !on_one_machine {
            return;
        }
        for (local, global) in [
            (Fact::LocalRank, Fact::Rank),
            (Fact::LocalWorldSize, Fact::WorldSize),
        ] {
            if self.get(local).is_none() {
                self.set(local, self.get(global));
            }
        }
    }
}
