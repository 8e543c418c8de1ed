//! Which ranks write into one folder.

use crate::Result;
use crate::collectives::gather_object;
use crate::state::PartialState;

/// The ranks whose files go into one folder: all of them, or those of one machine.
#[derive(Debug, Clone)]
pub(super) struct Sharing {
    /// The rank that makes each rank's folder, by rank.
    mains: Vec<usize>,
    rank: usize,
}

impl Sharing {
    /// One folder that all ranks see, or one on each machine.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(super) fn of(state: &PartialState, on_each_node: bool) -> Result<Self> {
        let rank = state.process_index();
        if !on_each_node {
            return Ok(Self {
                mains: vec![0; state.num_processes()],
                rank,
            });
        }
        let local = gather_object(state, vec![state.local_process_index()])?;
        Ok(Self {
            mains: mains(&local),
            rank,
        })
    }

    /// Whether this rank makes the folder, and writes what all ranks have alike.
    pub(super) fn is_main(&self) -> bool {
        self.main_of(self.rank) == self.rank
    }

    /// Of what each rank has, that of the ranks which share this rank's folder.
    pub(super) fn of_own<T>(&self, by_rank: Vec<T>) -> impl Iterator<Item = T> {
        let own = self.main_of(self.rank);
        let theirs = by_rank.into_iter().enumerate();
        theirs
            .filter(move |(rank, _)| self.main_of(*rank) == own)
            .map(|(_, one)| one)
    }

    /// Of what each rank has, that of the ranks which make folders.
    pub(super) fn of_mains<T>(&self, by_rank: Vec<T>) -> impl Iterator<Item = T> {
        let all = by_rank.into_iter().enumerate();
        all.filter(|(rank, _)| self.main_of(*rank) == *rank)
            .map(|(_, one)| one)
    }

    fn main_of(&self, rank: usize) -> usize {
        self.mains.get(rank).copied().unwrap_or(rank)
    }
}

/// Ranks of one machine follow each other, and the first of them has the local number 0.
fn mains(local: &[usize]) -> Vec<usize> {
    let mut main = 0;
    let ranks = local.iter().enumerate();
    ranks
        .map(|(rank, &local)| {
            if local == 0 {
                main = rank;
            }
            main
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_its_first_rank() {
        assert_eq!(mains(&[0, 1, 0, 1, 2]), [0, 0, 2, 2, 2]);
        let sharing = |rank| Sharing {
            mains: mains(&[0, 1, 0]),
            rank,
        };
        let values = || vec!["a", "b", "c"];
        assert!(sharing(0).is_main() && !sharing(1).is_main() && sharing(2).is_main());
        assert_eq!(sharing(1).of_own(values()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(sharing(2).of_own(values()).collect::<Vec<_>>(), ["c"]);
        assert_eq!(
            sharing(1).of_mains(values()).collect::<Vec<_>>(),
            ["a", "c"]
        );
    }
}
