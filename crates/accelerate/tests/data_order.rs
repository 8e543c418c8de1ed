//! Orders of samples, equal to what PyTorch and the original draw from the same seeds.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate::Result;
use accelerate::data::{
    Collate, DataLoader, DataLoaderShard, Dataset, RandomSampler, Sampler, SeedableRandomSampler,
    ShardOptions,
};
use accelerate_torch::Generator;
use tch::Tensor;

fn seed_global_generator(seed: u64) -> Result<()> {
    Ok(Generator::default_cpu()?.manual_seed(seed)?)
}

fn numbers(batch: &Tensor) -> Vec<i64> {
    Vec::try_from(batch).unwrap_or_default()
}

fn epoch_of<D, C>(loader: &DataLoader<D, C>) -> Result<Vec<Vec<i64>>>
where
    D: Dataset + 'static,
    C: Collate<D::Item, Batch = Tensor> + 'static,
{
    loader.iter().map(|batch| Ok(numbers(&batch?))).collect()
}

fn order(sampler: &impl Sampler) -> Vec<usize> {
    sampler.epoch().collect::<Result<_>>().unwrap()
}

#[derive(serde::Deserialize)]
struct SeedableCase {
    n: usize,
    data_seed: u64,
    epochs: Vec<Vec<usize>>,
    randperm: Vec<usize>,
}

#[test]
fn seedable_orders_are_the_recorded_ones() {
    let _turn = accelerate_testkit::turn();
    let text = include_str!("../../../tests/golden/seedable_random_sampler.json");
    let cases: Vec<SeedableCase> = serde_json::from_str(text).unwrap();
    assert!(cases.len() >= 20);
    for case in cases {
        let sampler = SeedableRandomSampler::new(case.n, case.data_seed).unwrap();
        for (epoch, expected) in case.epochs.iter().enumerate() {
            assert_eq!(
                &order(&sampler),
                expected,
                "seed {} epoch {epoch}",
                case.data_seed
            );
        }
        sampler.set_epoch(0);
        assert_eq!(order(&sampler), case.randperm);
    }
}

#[test]
fn an_epoch_that_was_left_early_is_still_the_current_one() {
    let _turn = accelerate_testkit::turn();
    let sampler = SeedableRandomSampler::new(10, 42).unwrap();
    let first: Vec<_> = sampler.epoch().take(3).collect::<Result<_>>().unwrap();
    assert_eq!(first, [2, 6, 1]);
    assert_eq!(order(&sampler), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
    assert_eq!(order(&sampler), [8, 4, 9, 0, 5, 1, 6, 7, 2, 3]);
}

#[test]
fn a_persistent_generator_draws_two_permutations_per_epoch() {
    let _turn = accelerate_testkit::turn();
    let generator = Arc::new(Generator::new(6_909_045_637_428_952_499).unwrap());
    let sampler = RandomSampler::new(8)
        .unwrap()
        .generator(Arc::clone(&generator));
    assert_eq!(order(&sampler), [0, 2, 6, 4, 3, 7, 1, 5]);
    assert_eq!(order(&sampler), [5, 3, 1, 0, 4, 6, 7, 2]);
    // An epoch that is left before its end does not get to the second one.
    generator.manual_seed(6_909_045_637_428_952_499).unwrap();
    assert_eq!(sampler.epoch().take(8).count(), 8);
    assert_eq!(order(&sampler), [1, 2, 6, 3, 0, 7, 5, 4]);
}

#[test]
fn several_permutations_and_replacement_follow_the_recorded_draws() {
    let _turn = accelerate_testkit::turn();
    // Recorded with torch 2.13: RandomSampler(range(5), generator seeded with 3, ...).
    let generator = || Generator::new(3).unwrap();
    let many = RandomSampler::new(5)
        .unwrap()
        .generator(generator())
        .num_samples(NonZeroUsize::new(12).unwrap());
    assert_eq!(order(&many), MANY);
    let again = RandomSampler::new(5)
        .unwrap()
        .generator(generator())
        .with_replacement()
        .num_samples(NonZeroUsize::new(40).unwrap());
    assert_eq!(order(&again), AGAIN);
    assert_eq!((many.len(), again.len()), (12, 40));
}

const MANY: [usize; 12] = [1, 0, 3, 4, 2, 0, 1, 2, 4, 3, 1, 4];
const AGAIN: [usize; 40] = [
    1, 3, 2, 2, 0, 0, 0, 0, 1, 4, 4, 1, 0, 4, 1, 4, 0, 4, 0, 4, 1, 4, 1, 1, 2, 3, 2, 4, 4, 0, 0, 1,
    4, 3, 4, 2, 3, 0, 2, 1,
];

#[test]
fn one_process_draws_as_the_plain_loader() {
    let _turn = accelerate_testkit::turn();
    seed_global_generator(42).unwrap();
    let loader = DataLoader::builder((0..8i64).collect::<Vec<_>>())
        .batch_size(2)
        .shuffle(true)
        .build();
    let loader = loader.unwrap();
    assert_eq!(
        epoch_of(&loader).unwrap().concat(),
        [0, 5, 1, 6, 3, 4, 2, 7]
    );
    assert_eq!(
        epoch_of(&loader).unwrap().concat(),
        [6, 3, 7, 4, 2, 0, 1, 5]
    );
}

#[test]
fn workers_do_not_change_the_order() {
    let _turn = accelerate_testkit::turn();
    seed_global_generator(42).unwrap();
    let data: Vec<i64> = (0..8).collect();
    let loader = DataLoader::builder(data)
        .batch_size(2)
        .shuffle(true)
        .num_workers(2)
        .build();
    let loader = loader.unwrap();
    assert_eq!(
        epoch_of(&loader).unwrap().concat(),
        [0, 5, 1, 6, 3, 4, 2, 7]
    );
    assert_eq!(
        epoch_of(&loader).unwrap().concat(),
        [6, 3, 7, 4, 2, 0, 1, 5]
    );
}

#[derive(serde::Deserialize)]
struct Recording {
    cases: Vec<PreparedCase>,
}

#[derive(serde::Deserialize)]
struct PreparedCase {
    world_size: NonZeroUsize,
    samples: i64,
    batch_size: usize,
    shuffle: bool,
    use_seedable_sampler: bool,
    even_batches: bool,
    seed: u64,
    ranks: Vec<Vec<Vec<Vec<i64>>>>,
}

#[test]
fn prepared_loaders_give_each_rank_the_recorded_batches() {
    let _turn = accelerate_testkit::turn();
    let text = include_str!("../../../tests/parity/fixtures/dataloader_order.json");
    let recording: Recording = serde_json::from_str(text).unwrap();
    assert!(recording.cases.len() >= 12);
    for (number, case) in recording.cases.iter().enumerate() {
        for (rank, expected) in case.ranks.iter().enumerate() {
            seed_global_generator(case.seed).unwrap();
            let data: Vec<i64> = (0..case.samples).collect();
            let loader = DataLoader::builder(data)
                .batch_size(case.batch_size)
                .shuffle(case.shuffle)
                .build()
                .unwrap();
            let options = ShardOptions {
                num_processes: case.world_size,
                process_index: rank,
                even_batches: case.even_batches,
                use_seedable_sampler: case.use_seedable_sampler,
                ..Default::default()
            };
            let shard = DataLoaderShard::new(loader, options).unwrap();
            for (epoch, expected) in expected.iter().enumerate() {
                let found: Vec<_> = shard.iter().map(|batch| numbers(&batch.unwrap())).collect();
                assert_eq!(
                    &found, expected,
                    "case {number}, rank {rank}, epoch {epoch}"
                );
                assert_eq!(shard.len(), found.len());
            }
        }
    }
}

/// The order of all ranks together for `seed` and `epoch`, step by step.
fn global_order(seed: u64, epoch: u64, ranks: usize) -> Vec<i64> {
    let mut parts = Vec::new();
    for rank in 0..ranks {
        let data: Vec<i64> = (0..12).collect();
        let loader = DataLoader::builder(data)
            .batch_size(2)
            .shuffle(true)
            .seed(1)
            .build()
            .unwrap();
        let options = ShardOptions {
            num_processes: NonZeroUsize::new(ranks).unwrap(),
            process_index: rank,
            use_seedable_sampler: true,
            data_seed: Some(seed),
            ..Default::default()
        };
        let shard = DataLoaderShard::new(loader, options).unwrap();
        shard.set_epoch(epoch);
        parts.push(
            shard
                .iter()
                .map(|batch| numbers(&batch.unwrap()))
                .collect::<Vec<_>>(),
        );
    }
    (0..parts[0].len())
        .flat_map(|step| parts.iter().flat_map(move |p| p[step].clone()))
        .collect()
}

#[test]
fn order_is_a_function_of_seed_and_epoch_for_any_number_of_ranks() {
    let mut seen = Vec::new();
    for seed in 0..4 {
        for epoch in 0..3 {
            let alone = global_order(seed, epoch, 1);
            assert_eq!(alone, SEEDED[seed as usize][epoch as usize]);
            assert_eq!(global_order(seed, epoch, 2), alone);
            assert_eq!(global_order(seed, epoch, 3), alone);
            seen.push((seed + epoch, alone));
        }
    }
    // Different sums of seed and epoch give different orders.
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

/// `torch.randperm(12)` for the seeds `seed + epoch`.
const SEEDED: [[[i64; 12]; 3]; 4] = [
    [
        [8, 0, 5, 9, 7, 4, 2, 10, 3, 1, 11, 6],
        [1, 4, 6, 8, 11, 0, 5, 3, 2, 9, 10, 7],
        [0, 9, 3, 2, 10, 5, 6, 7, 8, 1, 4, 11],
    ],
    [
        [1, 4, 6, 8, 11, 0, 5, 3, 2, 9, 10, 7],
        [0, 9, 3, 2, 10, 5, 6, 7, 8, 1, 4, 11],
        [10, 9, 1, 6, 4, 11, 3, 7, 2, 0, 8, 5],
    ],
    [
        [0, 9, 3, 2, 10, 5, 6, 7, 8, 1, 4, 11],
        [10, 9, 1, 6, 4, 11, 3, 7, 2, 0, 8, 5],
        [10, 2, 3, 5, 1, 4, 11, 8, 0, 9, 7, 6],
    ],
    [
        [10, 9, 1, 6, 4, 11, 3, 7, 2, 0, 8, 5],
        [10, 2, 3, 5, 1, 4, 11, 8, 0, 9, 7, 6],
        [11, 0, 9, 6, 10, 3, 4, 5, 8, 7, 1, 2],
    ],
];

#[test]
fn ranks_with_other_seeds_follow_rank_0() {
    let _turn = accelerate_testkit::turn();
    for use_seedable_sampler in [false, true] {
        let rank_0 = Arc::new(Generator::new(7).unwrap());
        let mut parts = Vec::new();
        for rank in 0..2 {
            seed_global_generator(100 + rank as u64).unwrap();
            let data: Vec<i64> = (0..8).collect();
            let loader = DataLoader::builder(data)
                .batch_size(2)
                .shuffle(true)
                .build()
                .unwrap();
            let state = Arc::clone(&rank_0);
            let options = ShardOptions {
                num_processes: NonZeroUsize::new(2).unwrap(),
                process_index: rank,
                use_seedable_sampler,
                sync_generator: Some(Box::new(move |own| Ok(own.set_state(&state.state()?)?))),
                ..Default::default()
            };
            let shard = DataLoaderShard::new(loader, options).unwrap();
            parts.extend(shard.iter().flat_map(|batch| numbers(&batch.unwrap())));
        }
        parts.sort_unstable();
        assert!(
            parts.into_iter().eq(0..8),
            "seedable: {use_seedable_sampler}"
        );
    }
}
