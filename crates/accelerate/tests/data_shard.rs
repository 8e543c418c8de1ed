//! Prepared loaders: what a loop knows about its end, and that metrics count every sample once.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;

use accelerate::data::{DataLoader, DataLoaderShard, LoaderProgress, ShardOptions};
use accelerate::{Error, Result};
use tch::{Device, Kind, Tensor};

type Shard = DataLoaderShard<Vec<i64>>;

fn numbers(batch: &Tensor) -> Vec<i64> {
    Vec::try_from(batch).unwrap_or_default()
}

fn options(ranks: usize, rank: usize, progress: &LoaderProgress) -> ShardOptions {
    ShardOptions {
        num_processes: NonZeroUsize::new(ranks).unwrap_or(NonZeroUsize::MIN),
        process_index: rank,
        progress: progress.clone(),
        ..Default::default()
    }
}

fn shard(samples: i64, batch_size: usize, drop_last: bool, options: ShardOptions) -> Result<Shard> {
    let data: Vec<i64> = (0..samples).collect();
    let loader = DataLoader::builder(data)
        .batch_size(batch_size)
        .drop_last(drop_last)
        .seed(1)
        .build()?;
    DataLoaderShard::new(loader, options)
}

#[test]
fn the_last_batch_is_known_while_it_is_worked_on() {
    let progress = LoaderProgress::new();
    for num_workers in [0, 2] {
        let data: Vec<i64> = (0..5).collect();
        let builder = DataLoader::builder(data)
            .batch_size(2)
            .num_workers(num_workers);
        let loader = builder.build().unwrap();
        let loader = DataLoaderShard::new(loader, options(1, 0, &progress)).unwrap();
        assert!(!progress.in_dataloader());
        let mut ends = Vec::new();
        for batch in &loader {
            assert!(batch.is_ok() && progress.in_dataloader());
            assert_eq!(progress.remainder(), Some(1));
            ends.push(progress.end_of_dataloader());
        }
        assert_eq!(ends, [false, false, true]);
        assert!(!progress.in_dataloader() && !progress.end_of_dataloader());
        assert_eq!((progress.remainder(), loader.iteration()), (None, 1));
    }
}

#[test]
fn the_inner_loop_is_active_until_it_ends_or_is_left() {
    let progress = LoaderProgress::new();
    let outer = shard(4, 2, false, options(1, 0, &progress)).unwrap();
    let inner = shard(7, 2, false, options(1, 0, &progress)).unwrap();
    let mut outer_ends = Vec::new();
    for batch in &outer {
        assert!(batch.is_ok());
        for batch in &inner {
            assert!(batch.is_ok());
            assert_eq!(progress.remainder(), Some(1));
        }
        // Leaving a loop drops its iterator.
        let mut left_early = inner.iter();
        assert!(left_early.next().is_some_and(|batch| batch.is_ok()));
        assert_eq!(progress.remainder(), Some(1));
        drop(left_early);
        assert_eq!(progress.remainder(), Some(0));
        outer_ends.push(progress.end_of_dataloader());
    }
    assert_eq!(outer_ends, [false, true]);
    assert!(!progress.in_dataloader());
    // Only epochs that were gone through to their end count.
    assert_eq!((outer.iteration(), inner.iteration()), (1, 2));
}

#[test]
fn a_loader_without_a_batch_leaves_no_trace() {
    let progress = LoaderProgress::new();
    let loader = shard(3, 4, true, options(1, 0, &progress)).unwrap();
    assert!(loader.is_empty());
    assert_eq!(loader.iter().count(), 0);
    assert_eq!((loader.iteration(), progress.in_dataloader()), (0, false));
}

/// What `gather_for_metrics` keeps over a loop on all ranks.
fn gathered(
    samples: i64,
    batch_size: usize,
    ranks: usize,
    drop_last: bool,
    split_batches: bool,
) -> Vec<i64> {
    let progress: Vec<_> = (0..ranks).map(|_| LoaderProgress::new()).collect();
    let shards: Vec<Shard> = progress
        .iter()
        .enumerate()
        .map(|(rank, progress)| {
            let options = ShardOptions {
                split_batches,
                ..options(ranks, rank, progress)
            };
            shard(samples, batch_size, drop_last, options).unwrap()
        })
        .collect();
    let mut loops: Vec<_> = shards.iter().map(|shard| shard.iter()).collect();
    let mut kept = Vec::new();
    loop {
        let step: Vec<Option<Vec<i64>>> = loops
            .iter_mut()
            .map(|batches| batches.next().map(|batch| numbers(&batch.unwrap())))
            .collect();
        if step.iter().all(Option::is_none) {
            return kept;
        }
        // Every rank has a batch at every step, or a collective would hang.
        let mut all: Vec<i64> = step.into_iter().flat_map(Option::unwrap).collect();
        let end = progress[0].end_of_dataloader();
        assert!(progress.iter().all(|own| own.end_of_dataloader() == end));
        if let Some(remainder) = progress[0].remainder().filter(|&rest| end && rest > 0) {
            all.truncate(remainder);
        }
        kept.extend(all);
    }
}

#[test]
fn metrics_count_every_sample_once_and_in_order() {
    for samples in 1..=40 {
        for batch_size in 1..=8 {
            for ranks in 1..=4 {
                for drop_last in [false, true] {
                    let kept = gathered(samples, batch_size, ranks, drop_last, false);
                    let total = i64::try_from(batch_size * ranks).unwrap();
                    // One rank alone drops only its own short batch.
                    let end = if drop_last {
                        samples - samples % total
                    } else {
                        samples
                    };
                    assert!(
                        kept.iter().copied().eq(0..end),
                        "{samples} samples, batch {batch_size}, {ranks} ranks, {drop_last}: {kept:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn metrics_count_every_sample_once_with_split_batches() {
    for samples in 1..=20 {
        for (batch_size, ranks) in [(2, 2), (4, 2), (6, 3), (4, 4)] {
            let kept = gathered(samples, batch_size, ranks, false, true);
            assert!(kept.into_iter().eq(0..samples));
        }
    }
}

#[test]
fn repeated_batches_of_varying_size_are_trimmed_too() {
    let batches: Vec<Vec<usize>> = vec![vec![0, 1, 2], vec![3], vec![4, 5], vec![6], vec![7, 8]];
    for ranks in 1..=4 {
        let progress: Vec<_> = (0..ranks).map(|_| LoaderProgress::new()).collect();
        let shards: Vec<Shard> = progress
            .iter()
            .enumerate()
            .map(|(rank, progress)| {
                let loader = DataLoader::builder((0..9i64).collect::<Vec<_>>())
                    .batch_sampler(batches.clone())
                    .num_workers(rank % 2)
                    .build()
                    .unwrap();
                DataLoaderShard::new(loader, options(ranks, rank, progress)).unwrap()
            })
            .collect();
        for _epoch in 0..2 {
            let mut loops: Vec<_> = shards.iter().map(|shard| shard.iter()).collect();
            let mut kept = Vec::new();
            for _step in 0..shards[0].len() {
                let mut all: Vec<i64> = loops
                    .iter_mut()
                    .flat_map(|own| numbers(&own.next().unwrap().unwrap()))
                    .collect();
                let end = progress[0].end_of_dataloader();
                if let Some(rest) = progress[0].remainder().filter(|_| end) {
                    all.truncate(rest);
                }
                kept.extend(all);
            }
            assert!(kept.into_iter().eq(0..9), "{ranks} ranks");
        }
    }
}

#[test]
fn uneven_ranks_see_every_sample_once_and_finish() {
    let seen = |even_batches| -> Vec<Vec<i64>> {
        (0..2)
            .map(|rank| {
                let progress = LoaderProgress::new();
                let options = ShardOptions {
                    even_batches,
                    ..options(2, rank, &progress)
                };
                let loader = shard(7, 2, false, options).unwrap();
                let batches: Vec<_> = loader
                    .iter()
                    .map(|batch| numbers(&batch.unwrap()))
                    .collect();
                assert_eq!(batches.len(), loader.len());
                batches.concat()
            })
            .collect()
    };
    assert_eq!(seen(true), [[0, 1, 4, 5], [2, 3, 6, 0]]);
    let exact = seen(false);
    assert_eq!(exact, [vec![0, 1, 4, 5], vec![2, 3, 6]]);
}

#[test]
fn sizes_are_those_of_all_ranks() {
    let progress = LoaderProgress::new();
    let whole = shard(10, 4, false, options(2, 1, &progress)).unwrap();
    assert_eq!((whole.total_batch_size(), whole.len()), (Some(8), 2));
    assert_eq!(whole.total_dataset_length(), 10);
    let options = ShardOptions {
        split_batches: true,
        ..options(2, 1, &progress)
    };
    let split = shard(10, 4, false, options).unwrap();
    assert_eq!((split.total_batch_size(), split.len()), (Some(4), 3));
    assert_eq!(
        split
            .iter()
            .map(|b| b.unwrap().size()[0])
            .collect::<Vec<_>>(),
        [2, 2, 2]
    );
}

#[test]
fn batches_that_cannot_be_split_are_refused() {
    let progress = LoaderProgress::new();
    let options = ShardOptions {
        split_batches: true,
        ..options(2, 0, &progress)
    };
    let message = shard(10, 3, false, options).unwrap_err().to_string();
    assert!(message.contains("a multiple of 2"), "{message}");
}

#[test]
fn the_generator_is_synchronised_once_before_each_epoch() {
    let progress = LoaderProgress::new();
    let calls = Rc::new(Cell::new(0));
    let count = Rc::clone(&calls);
    let loader = DataLoader::builder(vec![1i64, 2, 3])
        .shuffle(true)
        .build()
        .unwrap();
    let options = ShardOptions {
        sync_generator: Some(Box::new(move |_| {
            count.set(count.get() + 1);
            Ok(())
        })),
        ..options(2, 0, &progress)
    };
    let loader = DataLoaderShard::new(loader, options).unwrap();
    assert_eq!(calls.get(), 0);
    for epoch in 1..=3 {
        assert_eq!(loader.iter().filter(Result::is_ok).count(), 2);
        assert_eq!(calls.get(), epoch);
    }
}

#[test]
fn a_failed_synchronisation_is_the_only_item() {
    let progress = LoaderProgress::new();
    let loader = DataLoader::builder(vec![1i64, 2, 3])
        .shuffle(true)
        .build()
        .unwrap();
    let options = ShardOptions {
        sync_generator: Some(Box::new(|_| Err(Error::data("rank 0 is gone")))),
        ..options(2, 0, &progress)
    };
    let loader = DataLoaderShard::new(loader, options).unwrap();
    let outcomes: Vec<_> = loader.iter().collect();
    assert!(matches!(outcomes.as_slice(), [Err(Error::Data(_))]));
    assert_eq!((loader.iteration(), progress.in_dataloader()), (0, false));
}

#[test]
fn batches_are_moved_to_the_device() {
    let progress = LoaderProgress::new();
    let options = ShardOptions {
        device: Some(Device::Cpu),
        ..options(1, 0, &progress)
    };
    let loader = shard(4, 2, false, options).unwrap();
    for batch in &loader {
        let batch = batch.unwrap();
        assert_eq!((batch.device(), batch.kind()), (Device::Cpu, Kind::Int64));
    }
}
