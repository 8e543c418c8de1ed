//! The rest of an epoch keeps everything of its loader.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;

use accelerate::Result;
use accelerate::data::{
    DataLoader, DataLoaderShard, LoaderProgress, ShardOptions, skip_first_batches,
};
use proptest::prelude::*;
use tch::Tensor;

fn numbers(batch: Result<Tensor>) -> Vec<i64> {
    Vec::try_from(batch.unwrap()).unwrap()
}

fn shard(
    samples: i64,
    batch_size: usize,
    drop_last: bool,
    options: ShardOptions,
) -> DataLoaderShard<Vec<i64>> {
    let loader = DataLoader::builder((0..samples).collect::<Vec<_>>())
        .batch_size(batch_size)
        .drop_last(drop_last)
        .shuffle(true)
        .seed(4)
        .build()
        .unwrap();
    DataLoaderShard::new(loader, options).unwrap()
}

fn options(ranks: usize, rank: usize) -> ShardOptions {
    ShardOptions {
        num_processes: NonZeroUsize::new(ranks).unwrap(),
        process_index: rank,
        use_seedable_sampler: true,
        data_seed: Some(1),
        ..Default::default()
    }
}

#[test]
fn a_plain_loader_is_skipped_too() {
    for num_workers in [0, 2] {
        let loader = DataLoader::builder((0..7i64).collect::<Vec<_>>())
            .batch_size(2)
            .num_workers(num_workers)
            .seed(1)
            .build()
            .unwrap();
        let rest = skip_first_batches(&loader, 2);
        assert_eq!((rest.len(), rest.num_skipped()), (2, 2));
        let found: Vec<_> = rest.into_iter().map(numbers).collect();
        assert_eq!(found, [vec![4, 5], vec![6]]);
        let none = skip_first_batches(&loader, 9);
        assert!(none.is_empty());
        assert_eq!((&none).into_iter().count(), 0);
    }
}

#[test]
fn the_last_batch_is_known_and_trimmed() {
    let progress = LoaderProgress::new();
    let options = ShardOptions {
        progress: progress.clone(),
        ..options(2, 0)
    };
    let loader = shard(9, 2, false, options);
    let mut ends = Vec::new();
    for batch in skip_first_batches(&loader, 1) {
        assert!(batch.is_ok());
        ends.push((progress.end_of_dataloader(), progress.remainder()));
    }
    assert_eq!(ends, [(false, Some(1)), (true, Some(1))]);
    assert!(!progress.in_dataloader());
}

#[test]
fn the_epoch_counts_and_the_next_one_follows() {
    let loader = shard(12, 2, false, options(1, 0));
    let epochs: Vec<Vec<_>> = (0..2)
        .map(|_| loader.iter().map(numbers).collect())
        .collect();
    for skipped in 0..=6 {
        loader.set_epoch(0);
        let rest = skip_first_batches(&loader, skipped).into_iter();
        assert_eq!(rest.map(numbers).collect::<Vec<_>>(), epochs[0][skipped..]);
        assert_eq!(loader.iteration(), 1);
        assert_eq!(loader.iter().map(numbers).collect::<Vec<_>>(), epochs[1]);
    }
}

proptest! {
    #[test]
    fn the_rest_is_the_tail_on_every_rank(
        samples in 1i64..50,
        part in 1usize..5,
        ranks in 1usize..5,
        skipped in 0usize..12,
        split: bool,
        even_batches: bool,
        drop_last: bool,
    ) {
        let size = if split { part * ranks } else { part };
        for rank in 0..ranks {
            let options = ShardOptions { split_batches: split, even_batches, ..options(ranks, rank) };
            let loader = shard(samples, size, drop_last, options);
            let whole: Vec<_> = loader.iter().map(numbers).collect();
            prop_assert_eq!(loader.len(), whole.len());
            loader.set_epoch(0);
            let rest = skip_first_batches(&loader, skipped);
            let found: Vec<_> = rest.into_iter().map(numbers).collect();
            prop_assert_eq!(rest.len(), found.len());
            prop_assert_eq!(found, &whole[skipped.min(whole.len())..]);
        }
    }

    #[test]
    fn uneven_ranks_can_be_made_even_and_back(
        samples in 1i64..50,
        part in 1usize..5,
        ranks in 2usize..5,
    ) {
        let shards: Vec<_> = (0..ranks)
            .map(|rank| shard(samples, part, false, options(ranks, rank)))
            .collect();
        let epoch = |even| -> Vec<Vec<i64>> {
            shards
                .iter()
                .map(|shard| {
                    shard.set_even_batches(even);
                    shard.set_epoch(0);
                    let batches: Vec<_> = shard.iter().map(numbers).collect();
                    assert_eq!(batches.len(), shard.len());
                    batches.concat()
                })
                .collect()
        };
        let even = epoch(true);
        prop_assert!(even.iter().all(|own| own.len() == even[0].len()));
        let mut once = epoch(false).concat();
        once.sort_unstable();
        prop_assert!(once.into_iter().eq(0..samples));
        prop_assert_eq!(epoch(true), even);
    }
}
