//! Data sets, samplers, collation, the loader and its sharding over ranks.
//!
//! A [`Dataset`] answers for one index. A [`Sampler`] says in which order an
//! epoch asks, a [`BatchSampler`] cuts that order into batches, a [`Collate`]
//! makes one batch of the samples, and a [`DataLoader`] runs it all, in the
//! caller's thread or in worker threads. [`DataLoaderShard`] is what a prepared
//! loader is: each rank sees its own part, on its own device.

mod batch_deal;
mod batch_sampler;
mod batch_sampler_shard;
mod builder;
mod collate;
mod dataset;
mod loader;
mod progress;
mod random_sampler;
mod sampler;
mod shard;
mod shard_options;
mod stack;
mod worker;

pub use batch_sampler::{BatchIndices, BatchSampler, IndexBatches};
pub use batch_sampler_shard::{BatchSamplerShard, ShardLayout};
pub use builder::DataLoaderBuilder;
pub use collate::{Collate, StackLeaves};
pub use dataset::{Dataset, FnDataset, TensorDataset};
pub use loader::{DataLoader, DataLoaderIter};
pub use progress::{LoaderProgress, LoaderScope};
pub use random_sampler::{RandomSampler, SeedableRandomSampler};
pub use sampler::{Indices, Sampler, SequentialSampler};
pub use shard::{DataLoaderShard, DataLoaderShardIter};
pub use shard_options::{ShardOptions, SyncGenerator};
pub use stack::{Stack, StackItem};
pub use worker::{WorkerInfo, worker_info};
