//! The ranks that hold one model together, and those that hold copies of one shard.

use std::num::NonZeroUsize;

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
    /// All ranks, for what they tell each other when a backward pass begins.
    pub(super) agree: ProcessGroup,
    /// The ranks that hold the same shard, where there are several copies.
    pub(super) replicate: Option<ProcessGroup>,
    /// The ranks of one copy that are on one machine, where something is exchanged among them.
    pub(super) node: Option<Node>,
}

/// The groups of one rank on its machine.
#[derive(Debug)]
pub(super) struct Node {
    /// The ranks of one copy on this machine, for parameters.
    pub(super) gather: ProcessGroup,
    /// The same ranks, for gradients.
    pub(super) reduce: ProcessGroup,
    /// The ranks of the copy that have this place on their machines, where there are several.
    pub(super) across: Option<ProcessGroup>,
}

impl Groups {
    /// `node`: how many ranks of a copy make a machine, where something is exchanged among them.
    ///
    /// # Collective
    /// Every rank of `all` calls this.
    ///
    /// # Errors
    /// [`Error::Argument`] for a mesh that does not have as many ranks as the job, or has axes that
    /// cut something else than states of data parallel ranks, and for machines that do not divide the
    /// ranks of a copy.
    pub(super) fn new(all: &ProcessGroup, mesh: Mesh, node: Option<NonZeroUsize>) -> Result<Self> {
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
        let copies = distinct(ranks, |rank| mesh.shard_ranks(rank));
        let gather = match is_one_copy {
            true => all.clone(),
            false => own(all, rank, &copies)?,
        };
        let reduce = own(all, rank, &copies)?;
        let (agree, replicate) = match is_one_copy {
            true => (reduce.clone(), None),
            false => {
                let groups = distinct(ranks, |rank| mesh.replicate_ranks(rank));
                let everybody = vec![(0..ranks).collect()];
                let agree = own(all, rank, &everybody)?;
                (agree, Some(own(all, rank, &groups)?))
            }
        };
        let node = match node {
            Some(size) => Some(Node::new(all, &copies, size.get())?),
            None => None,
        };
        Ok(Self {
            all: all.clone(),
            gather,
            reduce,
            agree,
            replicate,
            node,
        })
    }

    /// The ranks of this machine, and those with this place on all machines, for gradients that are
    /// added up on each machine first.
    pub(super) fn across(&self) -> Option<(&ProcessGroup, &ProcessGroup)> {
        let node = self.node.as_ref()?;
        Some((&node.reduce, node.across.as_ref()?))
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

impl Node {
    fn new(all: &ProcessGroup, copies: &[Vec<usize>], size: usize) -> Result<Self> {
        let ranks = copies.first().map_or(0, Vec::len);
        if !ranks.is_multiple_of(size) {
            return Err(Error::Argument {
                operation: "sharding",
                expected: format!("a divisor of the {ranks} ranks that hold one copy"),
                found: format!("second shards over {size} ranks"),
            });
        }
        let rank = all.rank();
        let machines: Vec<Vec<usize>> = copies
            .iter()
            .flat_map(|copy| copy.chunks(size))
            .map(<[usize]>::to_vec)
            .collect();
        let places = copies.iter().flat_map(|copy| {
            let every = move |place| copy.iter().copied().skip(place).step_by(size).collect();
            (0..size).map(every)
        });
        let places: Vec<Vec<usize>> = places.collect();
        Ok(Self {
            gather: own(all, rank, &machines)?,
            reduce: own(all, rank, &machines)?,
            across: match size < ranks {
                true => Some(own(all, rank, &places)?),
                false => None,
            },
        })
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
