//! Samplers draw what PyTorch's draw from the same generators.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;

use accelerate::data::{
    DataLoader, DataLoaderShard, Dataset, FnDataset, LengthGroupedSampler, RandomSampler, Sampler,
    ShardOptions, Subset, SubsetRandomSampler, WeightedRandomSampler, skip_first_batches,
};
use accelerate::{Error, Result};
use accelerate_torch::Generator;
use tch::Tensor;

fn seed_global_generator(seed: u64) {
    Generator::default_cpu().unwrap().manual_seed(seed).unwrap();
}

#[derive(serde::Deserialize)]
struct Recording {
    weighted: Vec<Weighted>,
    replacement: Vec<Replacement>,
    subset: Vec<SubsetCase>,
    length_grouped: Vec<LengthGrouped>,
    prepared_weighted: Vec<PerRank<Vec<Vec<Vec<i64>>>>>,
    skipped: Vec<PerRank<Vec<Vec<Vec<i64>>>>>,
    skipped_cases: Vec<SkippedCase>,
}

#[derive(serde::Deserialize)]
struct Weighted {
    weights: Vec<f64>,
    num_samples: NonZeroUsize,
    replacement: bool,
    #[serde(flatten)]
    drawn: Drawn,
}

#[derive(serde::Deserialize)]
struct Replacement {
    length: usize,
    num_samples: NonZeroUsize,
    #[serde(flatten)]
    drawn: Drawn,
}

#[derive(serde::Deserialize)]
struct SubsetCase {
    indices: Vec<usize>,
    #[serde(flatten)]
    drawn: Drawn,
}

#[derive(serde::Deserialize)]
struct LengthGrouped {
    lengths: Vec<usize>,
    batch_size: NonZeroUsize,
    #[serde(flatten)]
    drawn: Drawn,
}

#[derive(serde::Deserialize)]
struct Drawn {
    seed: u64,
    own: Vec<Vec<usize>>,
    shared: Vec<Vec<usize>>,
}

#[derive(serde::Deserialize)]
struct PerRank<T> {
    world_size: NonZeroUsize,
    ranks: Vec<T>,
}

#[derive(serde::Deserialize)]
struct SkippedCase {
    samples: i64,
    batch_size: usize,
    shuffle: bool,
    use_seedable_sampler: bool,
    drop_last: bool,
    skip: usize,
}

fn recording() -> Recording {
    let text = include_str!("../../../tests/parity/fixtures/samplers.json");
    serde_json::from_str(text).unwrap()
}

fn numbers(batch: Result<Tensor>) -> Vec<i64> {
    Vec::try_from(batch.unwrap()).unwrap()
}

impl Drawn {
    /// Compares the epochs of a sampler, once with a generator of its own and once without.
    fn check<S: Sampler>(&self, make: impl Fn(Option<Generator>) -> S) {
        let epochs = |sampler: &S| -> Vec<Vec<usize>> {
            let epoch = || sampler.epoch().collect::<Result<Vec<_>>>().unwrap();
            self.own.iter().map(|_| epoch()).collect()
        };
        let own = make(Some(Generator::new(self.seed).unwrap()));
        assert!(own.generator().is_some());
        assert_eq!(epochs(&own), self.own, "own generator");
        assert_eq!(own.len(), self.own[0].len());
        seed_global_generator(self.seed);
        assert_eq!(epochs(&make(None)), self.shared, "global generator");
    }
}

#[test]
fn weighted_draws_are_the_recorded_ones() {
    let _turn = accelerate_testkit::turn();
    for case in recording().weighted {
        case.drawn.check(|generator| {
            let sampler = WeightedRandomSampler::new(&case.weights, case.num_samples).unwrap();
            let sampler = if case.replacement {
                sampler
            } else {
                sampler.without_replacement().unwrap()
            };
            match generator {
                Some(own) => sampler.generator(own),
                None => sampler,
            }
        });
    }
}

#[test]
fn draws_with_replacement_come_in_the_recorded_chunks() {
    let _turn = accelerate_testkit::turn();
    for case in recording().replacement {
        case.drawn.check(|generator| {
            let sampler = RandomSampler::new(case.length).unwrap();
            let sampler = sampler.with_replacement().num_samples(case.num_samples);
            match generator {
                Some(own) => sampler.generator(own),
                None => sampler,
            }
        });
    }
}

#[test]
fn orders_of_a_subset_are_the_recorded_ones() {
    let _turn = accelerate_testkit::turn();
    for case in recording().subset {
        case.drawn.check(|generator| {
            let sampler = SubsetRandomSampler::new(case.indices.clone());
            match generator {
                Some(own) => sampler.generator(own),
                None => sampler,
            }
        });
    }
}

#[test]
fn orders_grouped_by_length_are_the_recorded_ones() {
    let _turn = accelerate_testkit::turn();
    for case in recording().length_grouped {
        case.drawn.check(|generator| {
            let sampler = LengthGroupedSampler::new(case.lengths.clone(), case.batch_size).unwrap();
            match generator {
                Some(own) => sampler.generator(own),
                None => sampler,
            }
        });
    }
    let nothing = LengthGroupedSampler::new(Vec::new(), NonZeroUsize::MIN).unwrap_err();
    assert!(matches!(nothing, Error::EmptyDataset), "{nothing}");
}

#[test]
fn a_prepared_weighted_sampler_has_the_recorded_order_on_every_rank() {
    let _turn = accelerate_testkit::turn();
    for case in recording().prepared_weighted {
        for (rank, expected) in case.ranks.iter().enumerate() {
            seed_global_generator(42);
            let weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
            let sampler = WeightedRandomSampler::new(&weights, NonZeroUsize::new(9).unwrap());
            let loader = DataLoader::builder((0..6i64).collect::<Vec<_>>())
                .batch_size(2)
                .sampler(sampler.unwrap())
                .build()
                .unwrap();
            let options = ShardOptions {
                num_processes: case.world_size,
                process_index: rank,
                ..Default::default()
            };
            let shard = DataLoaderShard::new(loader, options).unwrap();
            for epoch in expected {
                assert_eq!(&shard.iter().map(numbers).collect::<Vec<_>>(), epoch);
            }
        }
    }
}

#[test]
fn the_rest_behind_skipped_batches_is_the_recorded_one() {
    let _turn = accelerate_testkit::turn();
    let recording = recording();
    for world in &recording.skipped {
        for (rank, expected) in world.ranks.iter().enumerate() {
            for (case, expected) in recording.skipped_cases.iter().zip(expected) {
                seed_global_generator(42);
                let loader = DataLoader::builder((0..case.samples).collect::<Vec<_>>())
                    .batch_size(case.batch_size)
                    .shuffle(case.shuffle)
                    .drop_last(case.drop_last)
                    .build()
                    .unwrap();
                let options = ShardOptions {
                    num_processes: world.world_size,
                    process_index: rank,
                    use_seedable_sampler: case.use_seedable_sampler,
                    ..Default::default()
                };
                let shard = DataLoaderShard::new(loader, options).unwrap();
                let rest = skip_first_batches(&shard, case.skip);
                assert_eq!(rest.len(), expected.len());
                let found: Vec<_> = rest.into_iter().map(numbers).collect();
                assert_eq!(&found, expected, "rank {rank} of {}", world.world_size);
            }
        }
    }
}

#[test]
fn weights_that_cannot_be_drawn_from_are_refused() {
    let _turn = accelerate_testkit::turn();
    let two = NonZeroUsize::new(2).unwrap();
    let refused: [(&[f64], &str); 4] = [
        (&[1.0, -0.5], "-0.5 at index 1"),
        (&[f64::NAN], "NaN at index 0"),
        (&[0.0, 0.0], "zeros only"),
        (&[], "empty data set"),
    ];
    for (weights, named) in refused {
        let message = WeightedRandomSampler::new(weights, two).unwrap_err();
        assert!(message.to_string().contains(named), "{message}");
    }
    let too_few = WeightedRandomSampler::new(&[1.0, 0.0, 0.0], two).unwrap();
    let message = too_few.without_replacement().unwrap_err().to_string();
    assert!(message.contains("found 1"), "{message}");
}

#[test]
fn an_index_of_weight_0_is_never_drawn_and_none_comes_twice_without_replacement() {
    let _turn = accelerate_testkit::turn();
    for seed in 0..50 {
        let weights = [0.0, 5.0, 1e-9, 1.0, 0.0, 2.0];
        let sampler = WeightedRandomSampler::new(&weights, NonZeroUsize::new(4).unwrap())
            .and_then(WeightedRandomSampler::without_replacement)
            .unwrap()
            .generator(Generator::new(seed).unwrap());
        let mut drawn = sampler.epoch().collect::<Result<Vec<_>>>().unwrap();
        drawn.sort_unstable();
        assert_eq!(drawn, [1, 2, 3, 5]);
    }
}

#[test]
fn a_fold_is_a_data_set() {
    let _turn = accelerate_testkit::turn();
    let data = FnDataset::new(10, |index| Ok(index * 10));
    let fold = Subset::new(data, vec![9, 0, 3]).unwrap();
    assert_eq!(fold.len(), 3);
    assert_eq!(Dataset::get(&fold, 0).unwrap(), 90);
    assert!(Dataset::get(&fold, 3).is_err());
    let message = Subset::new(vec![1, 2], vec![2]).unwrap_err().to_string();
    assert!(message.contains("below 2"), "{message}");
}

#[test]
fn orders_and_batches_of_ones_own_can_be_lists() {
    let _turn = accelerate_testkit::turn();
    let data: Vec<i64> = (0..6).collect();
    let order = DataLoader::builder(data.clone())
        .sampler(vec![4usize, 1, 1])
        .batch_size(2)
        .build()
        .unwrap();
    let found: Vec<_> = order.iter().map(numbers).collect();
    assert_eq!(found, [vec![4, 1], vec![1]]);

    let batches = vec![vec![0usize, 1, 2], vec![3], vec![4, 5]];
    for (rank, expected) in [[vec![0, 1, 2], vec![4, 5]], [vec![3], vec![0, 1, 2]]]
        .iter()
        .enumerate()
    {
        let loader = DataLoader::builder(data.clone())
            .batch_sampler(batches.clone())
            .build()
            .unwrap();
        let options = ShardOptions {
            num_processes: NonZeroUsize::new(2).unwrap(),
            process_index: rank,
            ..Default::default()
        };
        let shard = DataLoaderShard::new(loader, options).unwrap();
        assert_eq!(&shard.iter().map(numbers).collect::<Vec<_>>(), expected);
        assert_eq!((shard.len(), shard.total_batch_size()), (2, None));
    }
}

#[test]
fn a_batch_that_names_no_sample_is_an_error() {
    let _turn = accelerate_testkit::turn();
    let loader = DataLoader::builder(vec![1i64, 2])
        .batch_sampler(vec![vec![0usize], vec![1, 7]])
        .build()
        .unwrap();
    let outcomes: Vec<_> = loader.iter().collect();
    assert!(outcomes[0].is_ok());
    assert!(matches!(outcomes[1], Err(Error::Sample { index: 7, .. })));
}
