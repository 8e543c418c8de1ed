//! Streams: their loaders, and the part that each rank reads.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerate::data::{
    FnIterableDataset, IterableDataLoader, IterableDataLoaderShard, IterableDataset,
    IterableDatasetShard, IterableLayout, PreparedLoader, Samples, ShardOptions, worker_info,
};
use accelerate::{Accelerator, DataLoaderConfiguration, Error, Result};
use accelerate_testkit::{Rank, ranks};
use accelerate_torch::Generator;
use proptest::prelude::*;
use tch::Tensor;

fn values(batch: &Tensor) -> Result<Vec<i64>> {
    Ok(Vec::try_from(batch)?)
}

fn all(batches: impl IntoIterator<Item = Result<Tensor>>) -> Result<Vec<Vec<i64>>> {
    batches.into_iter().map(|batch| values(&batch?)).collect()
}

fn numbers(len: i64) -> impl IterableDataset<Item = i64> + 'static {
    FnIterableDataset::new(move || (0..len).map(Ok))
}

/// Files of numbers: file `f` holds `f * 100..f * 100 + len`.
#[derive(Debug, Clone)]
struct Files {
    lens: Vec<i64>,
    /// A number that cannot be read.
    broken: Option<i64>,
}

impl Files {
    fn new(lens: &[i64]) -> Self {
        Self {
            lens: lens.to_vec(),
            broken: None,
        }
    }

    fn numbers(&self, num: usize, index: usize) -> Vec<i64> {
        (0i64..)
            .zip(&self.lens)
            .skip(index)
            .step_by(num)
            .flat_map(|(file, &len)| file * 100..file * 100 + len)
            .collect()
    }
}

impl IterableDataset for Files {
    type Item = i64;

    fn epoch(&self) -> Samples<'_, i64> {
        self.shard(1, 0)
    }

    fn known_len(&self) -> Option<usize> {
        Some(self.numbers(1, 0).len())
    }

    fn num_shards(&self) -> usize {
        self.lens.len()
    }

    fn shard(&self, num: usize, index: usize) -> Samples<'_, i64> {
        Box::new(self.numbers(num, index).into_iter().map(|number| {
            if self.broken == Some(number) {
                return Err(Error::data(format!("file {} is damaged", number / 100)));
            }
            Ok(number)
        }))
    }
}

#[derive(serde::Deserialize)]
struct Case {
    n: i64,
    batch_size: NonZeroUsize,
    num_processes: NonZeroUsize,
    split_batches: bool,
    drop_last: bool,
    items: Option<Vec<Vec<i64>>>,
    error: Option<String>,
}

#[test]
fn every_recorded_case_is_met() {
    let text = include_str!("../../../tests/golden/iterable_dataset_shard.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    let mut met = 0;
    for (number, case) in cases.iter().enumerate() {
        let shard = |process_index| {
            let layout = IterableLayout {
                batch_size: case.batch_size,
                drop_last: case.drop_last,
                num_processes: case.num_processes,
                process_index,
                split_batches: case.split_batches,
            };
            let sized = FnIterableDataset::new(|| (0..case.n).map(Ok));
            let len = usize::try_from(case.n).unwrap();
            IterableDatasetShard::new(sized.with_len(len), layout)
        };
        if case.error.is_some() {
            assert!(
                matches!(shard(0), Err(Error::Argument { .. })),
                "case {number}"
            );
        }
        for (rank, expected) in case.items.iter().flatten().enumerate() {
            let shard = shard(rank).unwrap();
            let found: Vec<i64> = shard.epoch().collect::<Result<_>>().unwrap();
            assert_eq!(&found, expected, "case {number}, rank {rank}");
            assert_eq!(shard.known_len(), Some(found.len()), "case {number}");
            met += 1;
        }
    }
    assert!(met > 60, "met {met}");
}

#[test]
fn what_cannot_be_cut_is_read_by_one_worker_in_order() -> Result<()> {
    let reader = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = Arc::clone(&reader);
    let stream = FnIterableDataset::new(move || {
        let worker = worker_info().map_or(9, |info| info.num_workers * 10 + info.id);
        seen.store(worker, Ordering::Relaxed);
        (0..7).map(Ok)
    });
    let loader = IterableDataLoader::builder(stream)
        .batch_size(3)
        .num_workers(4)
        .build()?;
    for _ in 0..2 {
        assert_eq!(all(&loader)?, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    }
    assert_eq!(reader.load(Ordering::Relaxed), 10, "worker 0 of 1");
    assert_eq!(all(loader.iter().take(1))?, [[0, 1, 2]]);
    Ok(())
}

#[test]
fn each_worker_reads_its_own_part() -> Result<()> {
    let files = Files::new(&[3, 1, 2]);
    let loader = |workers| {
        IterableDataLoader::builder(files.clone())
            .batch_size(2)
            .num_workers(workers)
            .prefetch_factor(1)
            .build()
    };
    // Two workers: files 0 and 2, and file 1; their batches come in turn.
    assert_eq!(
        all(&loader(2)?)?,
        [vec![0, 1], vec![100], vec![2, 200], vec![201]]
    );
    // No more workers than files.
    assert_eq!(
        all(&loader(9)?)?,
        [vec![0, 1], vec![100], vec![200, 201], vec![2]]
    );
    assert_eq!(loader(1)?.known_len(), Some(3));
    assert_eq!(loader(2)?.known_len(), None);
    Ok(())
}

#[test]
fn errors_and_panics_end_the_epoch_and_say_where() -> Result<()> {
    let mut files = Files::new(&[5]);
    files.broken = Some(3);
    for workers in [0, 1] {
        let loader = IterableDataLoader::builder(files.clone())
            .batch_size(2)
            .num_workers(workers)
            .build()?;
        let found: Vec<_> = loader.iter().collect();
        assert_eq!(found.len(), 2);
        assert!(matches!(found[1], Err(Error::Sample { index: 3, .. })));
    }
    let panicking = FnIterableDataset::new(|| (0..5i64).map(|n| Ok(6 / (n - 4))));
    let loader = IterableDataLoader::builder(panicking)
        .num_workers(1)
        .build()?;
    let last = loader.iter().last().and_then(Result::err);
    assert!(
        matches!(&last, Some(Error::SamplePanicked { index: 4, message }) if message.contains("zero")),
        "{last:?}"
    );
    let loader = IterableDataLoader::builder(numbers(3))
        .batch_size(2)
        .collate(|items: Vec<i64>| match items.len() {
            1 => Err(Error::data("one is too few")),
            _ => Ok(Tensor::from_slice(&items)),
        })
        .build()?;
    let last = loader.iter().last().and_then(Result::err);
    assert!(matches!(last, Some(Error::Collate { indices, .. }) if indices == [2]));
    Ok(())
}

fn accelerator(dispatch: Option<bool>, split: bool, even: bool) -> Result<Accelerator> {
    Accelerator::builder()
        .cpu(true)
        .dataloader_config(DataLoaderConfiguration {
            dispatch_batches: dispatch,
            split_batches: split,
            even_batches: even,
            ..Default::default()
        })
        .build()
}

/// What one rank saw of a loop, and what was gathered in it.
fn run<S>(
    accelerator: &Accelerator,
    loader: &PreparedLoader<S>,
) -> Result<(Vec<Vec<i64>>, Vec<i64>)>
where
    S: accelerate::data::BatchSource<Batch = Tensor>,
{
    let (mut own, mut gathered) = (Vec::new(), Vec::new());
    for batch in loader {
        let batch = batch?;
        own.push(values(&batch)?);
        let all: Tensor = accelerator.gather_for_metrics(&batch)?;
        gathered.extend(values(&all)?);
    }
    Ok((own, gathered))
}

#[test]
fn ranks_share_a_stream_and_metrics_see_each_sample_once() {
    ranks(&[1, 2, 3], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(false), false, true)?;
        for len in [1i64, 4, 7, 9, 12] {
            let loader = IterableDataLoader::builder(numbers(len))
                .batch_size(2)
                .build()?;
            let loader = accelerator.prepare(loader)?;
            assert!(loader.as_shard().is_some());
            for epoch in 0..2 {
                assert_eq!(loader.iteration(), epoch);
                let (own, gathered) = run(&accelerator, &loader)?;
                assert_eq!(gathered, (0..len).collect::<Vec<_>>(), "{len} samples");
                if (rank.world(), len) == (2, 9) {
                    let expected = [[[0, 1], [4, 5], [8, 0]], [[2, 3], [6, 7], [1, 2]]];
                    assert_eq!(own, expected[rank.index()]);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn the_last_batch_is_known_and_split_batches_are_cut() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(false), true, true)?;
        let loader = IterableDataLoader::builder(numbers(9))
            .batch_size(2)
            .build()?;
        let loader = accelerator.prepare(loader)?;
        assert_eq!((loader.total_batch_size(), loader.known_len()), (2, None));
        let mut found = Vec::new();
        for batch in &loader {
            let state = accelerator.gradient_state();
            found.push((values(&batch?)?[0], state.end_of_dataloader()));
        }
        let expected = [[0, 2, 4, 6, 8], [1, 3, 5, 7, 0]][rank.index()];
        let expected: Vec<_> = expected
            .into_iter()
            .zip([false, false, false, false, true])
            .collect();
        assert_eq!(found, expected);
        let odd = IterableDataLoader::builder(numbers(9))
            .batch_size(3)
            .build()?;
        assert!(matches!(
            accelerator.prepare(odd),
            Err(Error::Argument { .. })
        ));
        let skipped = all(loader.skip_first_batches(3))?;
        assert_eq!(skipped, [[[6], [8]], [[7], [0]]][rank.index()]);
        Ok(())
    });
}

#[test]
fn parts_of_different_length_end_together() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(None, false, true)?;
        let files = Files::new(&[5, 2, 3, 1]);
        let loader = IterableDataLoader::builder(files.clone())
            .batch_size(2)
            .build()?;
        let loader = accelerator.prepare(loader)?;
        assert!(
            loader.as_shard().is_some(),
            "each rank has files of its own"
        );
        let mut steps = 0;
        let mut seen = BTreeSet::new();
        for batch in &loader {
            let batch = batch?;
            assert_eq!(batch.size(), [2], "every batch is full");
            steps += 1;
            let last = accelerator.gradient_state().end_of_dataloader();
            // Two ranks: 5 + 3 and 2 + 1 samples; three ranks: 5 + 1, 2 and 3.
            assert_eq!(last, steps == if rank.world() == 2 { 4 } else { 3 });
            let all: Tensor = accelerator.gather(&batch)?;
            seen.extend(values(&all)?);
        }
        assert_eq!(seen, files.numbers(1, 0).into_iter().collect());
        if (rank.world(), rank.index()) == (2, 1) {
            let own = all(&loader)?;
            assert_eq!(own, [[100, 101], [300, 100], [100, 101], [300, 100]]);
        } else {
            all(&loader)?;
        }
        assert_eq!(loader.iteration(), 2);
        Ok(())
    });
}

#[test]
fn parts_may_end_by_themselves() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(None, false, false)?;
        let loader = IterableDataLoader::builder(Files::new(&[5, 2]))
            .batch_size(2)
            .build()?;
        let own = all(&accelerator.prepare(loader)?)?;
        if rank.index() == 0 {
            assert_eq!(own, [vec![0, 1], vec![2, 3], vec![4]]);
        } else {
            assert_eq!(own, [[100, 101]]);
        }
        Ok(())
    });
}

#[test]
fn one_ranks_error_ends_the_loop_on_all() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(None, false, true)?;
        let mut files = Files::new(&[6, 6, 6]);
        files.broken = Some(104);
        let loader = IterableDataLoader::builder(files).batch_size(2).build()?;
        let loader = accelerator.prepare(loader)?;
        let found: Vec<_> = loader.iter().collect();
        assert_eq!(found.len(), 3);
        match &found[2] {
            Err(Error::Sample { index: 4, .. }) => assert_eq!(rank.index(), 1),
            Err(Error::ReadElsewhere { rank: 1, message }) => {
                assert!(
                    rank.index() != 1 && message.contains("file 1 is damaged"),
                    "{message}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(loader.iteration(), 0);
        // A rank without any batch is an error on every rank.
        let empty = IterableDataLoader::builder(Files::new(&[4, 0, 4]))
            .batch_size(2)
            .build()?;
        let message = accelerator.prepare(empty)?.iter().find_map(Result::err);
        let message = message.map(|error| error.to_string());
        assert!(message.is_some_and(|text| text.contains("ranks [1]")));
        accelerator.wait_for_everyone()
    });
}

/// A stream in an order that a generator decides.
struct Shuffled {
    generator: Generator,
}

impl IterableDataset for Shuffled {
    type Item = i64;

    fn epoch(&self) -> Samples<'_, i64> {
        let order = self.generator.randperm(6).map_err(Error::from);
        match order.and_then(|order| values(&order)) {
            Ok(order) => Box::new(order.into_iter().map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn generator(&self) -> Option<&Generator> {
        Some(&self.generator)
    }
}

#[test]
fn a_generator_gives_every_rank_the_order_of_the_epoch() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(false), false, true)?;
        let generator = Generator::new(rank.index() as u64)?;
        let loader = IterableDataLoader::builder(Shuffled { generator }).build()?;
        let loader = accelerator.prepare(loader)?;
        for epoch in 0..2 {
            let expected = values(&Generator::new(epoch)?.randperm(6)?)?;
            assert_eq!(run(&accelerator, &loader)?.1, expected, "epoch {epoch}");
        }
        Ok(())
    });
}

/// What `ranks` ranks read of a stream that all of them share, rank by rank.
fn slices(
    samples: i64,
    part: usize,
    ranks: usize,
    split_batches: bool,
    drop_last: bool,
) -> Vec<Vec<i64>> {
    let size = if split_batches { part * ranks } else { part };
    (0..ranks)
        .map(|process_index| {
            let layout = IterableLayout {
                batch_size: NonZeroUsize::new(size).unwrap(),
                drop_last,
                num_processes: NonZeroUsize::new(ranks).unwrap(),
                process_index,
                split_batches,
            };
            let stream = FnIterableDataset::new(move || (0..samples).map(Ok));
            let stream = stream.with_len(usize::try_from(samples).unwrap());
            let shard = IterableDatasetShard::new(stream, layout).unwrap();
            let own: Vec<i64> = shard.epoch().collect::<Result<_>>().unwrap();
            assert_eq!(shard.known_len(), Some(own.len()), "rank {process_index}");
            own
        })
        .collect()
}

/// The samples of all ranks in the order of the stream: `part` of each rank in turn.
fn in_turn(parts: &[Vec<i64>], part: usize) -> Vec<i64> {
    let steps = parts.iter().map(|own| own.len().div_ceil(part)).max();
    (0..steps.unwrap_or(0))
        .flat_map(|step| {
            parts
                .iter()
                .flat_map(move |own| own.iter().skip(step * part).take(part).copied())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn slices_are_the_stream_with_its_start_behind_it(
        samples in 1i64..60,
        part in 1usize..6,
        ranks in 1usize..5,
        split: bool,
    ) {
        let parts = slices(samples, part, ranks, split, false);
        prop_assert!(parts.iter().all(|own| own.len() == parts[0].len()));
        let mut seen = in_turn(&parts, part);
        let whole = usize::try_from(samples).unwrap().next_multiple_of(part * ranks);
        prop_assert_eq!(seen.len(), whole);
        seen.truncate(usize::try_from(samples).unwrap());
        prop_assert!(seen.into_iter().eq(0..samples));
    }

    #[test]
    fn slices_that_drop_the_last_are_disjoint_and_whole_rounds(
        samples in 0i64..60,
        part in 1usize..6,
        ranks in 1usize..5,
        split: bool,
    ) {
        let seen = in_turn(&slices(samples, part, ranks, split, true), part);
        let round = i64::try_from(part * ranks).unwrap();
        prop_assert!(seen.into_iter().eq(0..samples - samples % round));
    }

    #[test]
    fn parts_of_ranks_and_workers_are_disjoint_and_cover_the_stream(
        lens in prop::collection::vec(0i64..7, 4..9),
        size in 1usize..4,
        ranks in 1usize..5,
        workers in 0usize..4,
    ) {
        let mut seen = Vec::new();
        for process_index in 0..ranks {
            let loader = IterableDataLoader::builder(Files::new(&lens))
                .batch_size(size)
                .num_workers(workers)
                .build()
                .unwrap();
            let options = ShardOptions {
                num_processes: NonZeroUsize::new(ranks).unwrap(),
                process_index,
                even_batches: false,
                ..Default::default()
            };
            let shard = IterableDataLoaderShard::new(loader, options, None).unwrap();
            let batches = all(&shard).unwrap();
            prop_assert!(batches.iter().all(|batch| (1..=size).contains(&batch.len())));
            if let Some(len) = shard.known_len() {
                prop_assert_eq!(len, batches.len());
            }
            seen.extend(batches.concat());
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, Files::new(&lens).numbers(1, 0));
    }
}
