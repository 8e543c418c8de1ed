//! The ranks that hold one model together, and those that hold copies of one shard.

use accelerate_plan::parallel::Mesh;
use accelerate_torch::ProcessGroup;

use crate::{Error, Result};

/// The groups of one rank.
#[derive(Debug)]
pub(super) struct Groups {
    /// All ranks of the job.
    pub(super) all: ProcessGroup,
    /// The ranks that hold one copy of the model, for parameters.
    pub(super) gather: ProcessGroup,
    /// The same ranks, for gradients: where ranks use different parameters, these come between
    /// gathers at different times.
    pub(super) reduce: ProcessGroup,
    /// The ranks that hold the same shard, where there are several copies.
    pub(super) replicate: Option<ProcessGroup>,
}

impl Groups {
    /// # Collective
    /// Every rank of `all` calls this.
    ///
    /// # Errors
    /// [`Error::Argument`] for a mesh that does not have as many ranks as the job, or has axes that
    /// cut something else than states of data parallel ranks.
    pub(super) fn new(all: &ProcessGroup, mesh: Mesh) -> Result<Self> {
        let (ranks, found) = (all.size(), mesh.world_size().get());
        if found != ranks || mesh.data_parallel().get() != ranks {
            return Err(Error::Argument {
                operation: "sharding",
                expected: format!("replicate x shard = {ranks} ranks"),
                found: format!(
                    "replicate {} x shard {} x context {} x tensor {} x pipeline {} = {found}",
                    mesh.replicate, mesh.shard, mesh.context, mesh.tensor, mesh.pipeline
                ),
            });
        }
        let rank = all.rank();
        let is_one_copy = mesh.replicate.get() == 1;
        let shard_groups = distinct(ranks, |rank| mesh.shard_ranks(rank));
        let gather = match is_one_copy {
            true => all.clone(),
            false => own(all, rank, &shard_groups)?,
        };
        let reduce = own(all, rank, &shard_groups)?;
        let replicate = match is_one_copy {
            true => None,
            false => {
                let groups = distinct(ranks, |rank| mesh.replicate_ranks(rank));
                Some(own(all, rank, &groups)?)
            }
        };
        Ok(Self {
            all: all.clone(),
            gather,
            reduce,
            replicate,
        })
    }

    /// This rank's place among those that hold one copy.
    pub(super) fn rank(&self) -> usize {
        self.gather.rank()
    }

    /// How many ranks hold one copy.
    pub(super) fn shards(&self) -> usize {
        self.gather.size()
    }
}

/// The groups that `of` puts ranks into, each once.
fn distinct(ranks: usize, of: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for rank in 0..ranks {
        let group = of(rank);
        if !found.contains(&group) {
            found.push(group);
        }
    }
    found
}

/// Makes all groups, as every rank has to, and keeps this rank's own.
fn own(all: &ProcessGroup, rank: usize, groups: &[Vec<usize>]) -> Result<ProcessGroup> {
    let mut found = None;
    for ranks in groups {
        let made = all.subgroup(ranks)?;
        if ranks.contains(&rank) {
            found = made;
        }
    }
    found.ok_or_else(|| Error::Argument {
        operation: "sharding",
        expected: format!("a group with rank {rank}"),
        found: format!("{groups:?}"),
    })
}
