use std::num::NonZeroUsize;

use accelerate_torch::Generator;

use super::dataset_shard::{IterableDatasetShard, IterableLayout};
use super::{IterableDataset, Samples};
use crate::Result;

/// What one rank reads of a stream.
#[derive(Debug)]
pub(super) enum RankStream<D> {
    /// All of it: there is one rank, or this one deals out.
    Whole(D),
    /// The part that the data set itself cuts out for this rank.
    Part {
        dataset: D,
        num_processes: usize,
        process_index: usize,
    },
    /// All of it, to keep the rank's own slices.
    Slices(IterableDatasetShard<D>),
}

impl<D: IterableDataset> RankStream<D> {
    pub(super) fn new(dataset: D, layout: IterableLayout) -> Result<Self> {
        let ranks = layout.num_processes.get();
        Ok(if ranks == 1 {
            Self::Whole(dataset)
        } else if shards_natively(&dataset, layout.num_processes, layout.split_batches) {
            Self::Part {
                dataset,
                num_processes: ranks,
                process_index: layout.process_index,
            }
        } else {
            Self::Slices(IterableDatasetShard::new(dataset, layout)?)
        })
    }

    pub(super) fn dataset(&self) -> &D {
        match self {
            Self::Whole(dataset) | Self::Part { dataset, .. } => dataset,
            Self::Slices(shard) => shard.dataset(),
        }
    }
}

/// Whether a data set can give each rank a part of its own.
pub(super) fn shards_natively(
    dataset: &impl IterableDataset,
    num_processes: NonZeroUsize,
    split_batches: bool,
) -> bool {
    !split_batches && num_processes.get() > 1 && dataset.num_shards() >= num_processes.get()
}

impl<D: IterableDataset> IterableDataset for RankStream<D> {
    type Item = D::Item;

    fn epoch(&self) -> Samples<'_, D::Item> {
        match self {
            Self::Whole(dataset) => dataset.epoch(),
            Self::Part {
                dataset,
                num_processes,
                process_index,
            } => dataset.shard(*num_processes, *process_index),
            Self::Slices(shard) => shard.epoch(),
        }
    }

    fn set_epoch(&self, epoch: u64) {
        match self {
            Self::Whole(dataset) | Self::Part { dataset, .. } => dataset.set_epoch(epoch),
            Self::Slices(shard) => shard.set_epoch(epoch),
        }
    }

    fn known_len(&self) -> Option<usize> {
        match self {
            Self::Whole(dataset) => dataset.known_len(),
            // How much of it lies in a part is the data set's own matter.
            Self::Part { .. } => None,
            Self::Slices(shard) => shard.known_len(),
        }
    }

    fn generator(&self) -> Option<&Generator> {
        self.dataset().generator()
    }

    fn num_shards(&self) -> usize {
        match self {
            Self::Whole(dataset) => dataset.num_shards(),
            Self::Part {
                dataset,
                num_processes,
                ..
            } => dataset.num_shards() / num_processes,
            // Slices go through one reader, which has to see every sample.
            Self::Slices(_) => 1,
        }
    }

    fn shard(&self, num: usize, index: usize) -> Samples<'_, D::Item> {
        match self {
            Self::Whole(dataset) => dataset.shard(num, index),
            Self::Part {
                dataset,
                num_processes,
                process_index,
            } => dataset.shard(num * num_processes, process_index + num_processes * index),
            Self::Slices(shard) => shard.shard(num, index),
        }
    }

    fn shard_after(&self, num: usize, index: usize, samples: usize) -> Samples<'_, D::Item> {
        match self {
            Self::Whole(dataset) => dataset.shard_after(num, index, samples),
            Self::Part {
                dataset,
                num_processes,
                process_index,
            } => dataset.shard_after(
                num * num_processes,
                process_index + num_processes * index,
                samples,
            ),
            Self::Slices(shard) => shard.shard_after(num, index, samples),
        }
    }
}
