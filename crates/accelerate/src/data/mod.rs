//! Data sets, samplers, collation, the loader and its sharding over ranks.
//!
//! A [`Dataset`] answers for one index. A [`Sampler`] says in which order an
//! epoch asks, a [`BatchSampler`] cuts that order into batches, a [`Collate`]
//! makes one batch of the samples, and a [`DataLoader`] runs it all, in the
//! caller's thread or in worker threads. [`DataLoaderShard`] is what a prepared
//! loader is: each rank sees its own part, on its own device.
//!
//! An [`IterableDataset`] is read from its start on, through an [`IterableDataLoader`].
//! Prepared, each rank reads its own part of it ([`IterableDataLoaderShard`]), or rank 0
//! reads and deals out ([`DataLoaderDispatcher`]), which map-style loaders can do too.

mod batch_deal;
mod batch_sampler;
mod batch_sampler_shard;
mod builder;
mod collate;
mod crew;
mod dataset;
mod dispatcher;
mod iterable;
mod length_grouped_sampler;
mod loader;
mod loader_control;
mod loader_state;
mod own_generator;
mod progress;
mod random_sampler;
mod rng_type;
mod sampler;
mod shard;
mod shard_iter;
mod shard_options;
mod shard_position;
mod skip;
mod stack;
mod subset;
mod weighted_sampler;
mod worker;

pub use batch_sampler::{BatchIndices, BatchSampler, IndexBatches};
pub use batch_sampler_shard::{BatchSamplerShard, ShardLayout};
pub use builder::DataLoaderBuilder;
pub use collate::{Collate, StackLeaves};
pub use dataset::{Dataset, FnDataset, TensorDataset};
pub use dispatcher::{
    BatchSource, Batches, DataLoaderDispatcher, DataLoaderDispatcherIter, PreparedDataLoader,
    PreparedIterableDataLoader, PreparedLoader, PreparedLoaderIter,
};
pub use iterable::{
    FnIterableDataset, IterableDataLoader, IterableDataLoaderBuilder, IterableDataLoaderIter,
    IterableDataLoaderShard, IterableDataLoaderShardIter, IterableDataset, IterableDatasetShard,
    IterableLayout, Samples,
};
pub use length_grouped_sampler::LengthGroupedSampler;
pub use loader::{DataLoader, DataLoaderIter};
pub use loader_control::LoaderControl;
pub use loader_state::DataLoaderState;
pub use progress::{LoaderProgress, LoaderScope};
pub use random_sampler::{RandomSampler, SeedableRandomSampler};
pub(crate) use rng_type::generator_sync;
pub use rng_type::{RngType, synchronize_rng_states};
pub use sampler::{Indices, Sampler, SequentialSampler};
pub use shard::DataLoaderShard;
pub use shard_iter::DataLoaderShardIter;
pub use shard_options::{Explain, ShardOptions, SyncGenerator, SyncGlobal};
pub use skip::{RestOfEpoch, skip_first_batches};
pub use stack::{Stack, StackItem};
pub use subset::{Subset, SubsetRandomSampler};
pub use weighted_sampler::WeightedRandomSampler;
pub use worker::{WorkerInfo, worker_info};
