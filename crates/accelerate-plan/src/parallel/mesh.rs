//! The ranks of a job as a grid.

use std::{fmt, num::NonZeroUsize};

/// How many ranks lie along each axis of the grid.
///
/// Axes are listed from the outermost to the innermost: neighbouring ranks differ in the last axis
/// that is longer than 1. So the ranks of a shard group are neighbours, on one machine where the
/// group is as large as a machine, and copies lie a group apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mesh {
    /// Stages of the pipeline.
    pub pipeline: NonZeroUsize,
    /// Copies of the model.
    pub replicate: NonZeroUsize,
    /// Ranks over which one copy is sharded.
    pub shard: NonZeroUsize,
    /// Ranks over which sequences are cut.
    pub context: NonZeroUsize,
    /// Ranks over which layers are cut.
    pub tensor: NonZeroUsize,
}

/// Where a rank stands along each axis, each from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its stage of the pipeline.
    pub pipeline: usize,
    /// Its copy of the model.
    pub replicate: usize,
    /// Its shard.
    pub shard: usize,
    /// Its part of the sequences.
    pub context: usize,
    /// Its part of the layers.
    pub tensor: usize,
}

const ONE: NonZeroUsize = NonZeroUsize::MIN;

impl Mesh {
    /// `replicate` copies of the model, each in `shard` shards, and no other axis.
    pub const fn new(replicate: NonZeroUsize, shard: NonZeroUsize) -> Self {
        Self {
            pipeline: ONE,
            replicate,
            shard,
            context: ONE,
            tensor: ONE,
        }
    }

    /// One copy in `shard` shards.
    pub const fn sharded(shard: NonZeroUsize) -> Self {
        Self::new(ONE, shard)
    }

    /// `replicate` whole copies.
    pub const fn replicated(replicate: NonZeroUsize) -> Self {
        Self::new(replicate, ONE)
    }

    /// Number of ranks in the grid.
    pub const fn world_size(self) -> NonZeroUsize {
        self.pipeline
            .saturating_mul(self.replicate)
            .saturating_mul(self.shard)
            .saturating_mul(self.context)
            .saturating_mul(self.tensor)
    }

    /// Number of ranks that each read other samples.
    pub const fn data_parallel(self) -> NonZeroUsize {
        self.replicate.saturating_mul(self.shard)
    }

    /// Where a rank stands; `None` if the grid has no such rank.
    pub fn place(self, rank: usize) -> Option<Place> {
        if rank >= self.world_size().get() {
            return None;
        }
        let (rest, tensor) = split(rank, self.tensor);
        let (rest, context) = split(rest, self.context);
        let (rest, shard) = split(rest, self.shard);
        let (pipeline, replicate) = split(rest, self.replicate);
        Some(Place {
            pipeline,
            replicate,
            shard,
            context,
            tensor,
        })
    }

    /// The rank that stands at a place inside of the grid.
    pub fn rank(self, place: Place) -> usize {
        let within = |rest: usize, size: NonZeroUsize, index: usize| rest * size.get() + index;
        let rest = within(place.pipeline, self.replicate, place.replicate);
        let rest = within(rest, self.shard, place.shard);
        let rest = within(rest, self.context, place.context);
        within(rest, self.tensor, place.tensor)
    }

    /// The ranks that hold one copy together with this one, in order of their shards; empty if the
    /// grid has no such rank.
    pub fn shard_ranks(self, rank: usize) -> Vec<usize> {
        let Some(place) = self.place(rank) else {
            return Vec::new();
        };
        (0..self.shard.get())
            .map(|shard| self.rank(Place { shard, ..place }))
            .collect()
    }

    /// The ranks that hold the same shard as this one, in order of their copies; empty if the grid
    /// has no such rank.
    pub fn replicate_ranks(self, rank: usize) -> Vec<usize> {
        let Some(place) = self.place(rank) else {
            return Vec::new();
        };
        (0..self.replicate.get())
            .map(|replicate| self.rank(Place { replicate, ..place }))
            .collect()
    }
}

/// Quotient and remainder.
fn split(number: usize, by: NonZeroUsize) -> (usize, usize) {
    (number / by.get(), number % by.get())
}

/// The axes longer than 1, such as `2 x replicate, 4 x shard`.
impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = [
            (self.pipeline, "pipeline"),
            (self.replicate, "replicate"),
            (self.shard, "shard"),
            (self.context, "context"),
            (self.tensor, "tensor"),
        ];
        let long: Vec<_> = axes
            .into_iter()
            .filter(|(size, _)| size.get() > 1)
            .map(|(size, name)| format!("{size} x {name}"))
            .collect();
        match long.is_empty() {
            true => f.pad("1 rank"),
            false => f.pad(&long.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    #[test]
    fn shards_are_neighbours_and_copies_lie_apart() {
        let mesh = Mesh::new(size(2), size(3));
        assert_eq!(mesh.world_size(), size(6));
        assert_eq!(mesh.shard_ranks(4), [3, 4, 5]);
        assert_eq!(mesh.replicate_ranks(4), [1, 4]);
        assert_eq!(mesh.shard_ranks(6), [] as [usize; 0]);
        assert_eq!(mesh.to_string(), "2 x replicate, 3 x shard");
        assert_eq!(Mesh::sharded(size(1)).to_string(), "1 rank");
    }

    proptest! {
        #[test]
        fn every_rank_has_one_place(sizes in [1_usize..4, 1..4, 1..4, 1..4, 1..4]) {
            let [pipeline, replicate, shard, context, tensor] = sizes.map(size);
            let mesh = Mesh { pipeline, replicate, shard, context, tensor };
            let count = mesh.world_size().get();
            prop_assert_eq!(count, sizes.iter().product::<usize>());
            for rank in 0..count {
                prop_assert_eq!(mesh.place(rank).map(|place| mesh.rank(place)), Some(rank));
                prop_assert!(mesh.shard_ranks(rank).contains(&rank));
                prop_assert!(mesh.replicate_ranks(rank).contains(&rank));
            }
            prop_assert_eq!(mesh.place(count), None);
        }
    }
}
