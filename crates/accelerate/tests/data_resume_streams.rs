//! Streams, and loaders that rank 0 deals out, go on as if they had never been interrupted.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use accelerate::data::{
    BatchSource, DataLoader, DataLoaderState, FnDataset, IterableDataLoader,
    IterableDataLoaderShard, IterableDataset, PreparedLoader, Samples, ShardOptions,
};
use accelerate::{Accelerator, DataLoaderConfiguration, Error, Result};
use accelerate_testkit::{Rank, ranks};
use accelerate_torch::Generator;
use tch::Tensor;

const EPOCHS: u64 = 2;

/// Files of different length, in an order that depends on the epoch.
#[derive(Debug, Default)]
struct Files {
    lens: Vec<i64>,
    epoch: AtomicU64,
    /// How many samples were read.
    read: Arc<AtomicUsize>,
}

impl Files {
    fn new(lens: &[i64]) -> Self {
        Self {
            lens: lens.to_vec(),
            ..Self::default()
        }
    }
}

impl IterableDataset for Files {
    type Item = i64;

    fn epoch(&self) -> Samples<'_, i64> {
        self.shard(1, 0)
    }

    fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    fn known_len(&self) -> Option<usize> {
        usize::try_from(self.lens.iter().sum::<i64>()).ok()
    }

    fn num_shards(&self) -> usize {
        self.lens.len()
    }

    fn shard(&self, num: usize, index: usize) -> Samples<'_, i64> {
        let turn = 1000 * self.epoch.load(Ordering::SeqCst) as i64;
        let files = (0i64..).zip(&self.lens).skip(index).step_by(num);
        let numbers = files.flat_map(move |(file, &len)| {
            (turn + file * 100..turn + file * 100 + len).collect::<Vec<_>>()
        });
        Box::new(numbers.map(|number| {
            self.read.fetch_add(1, Ordering::SeqCst);
            Ok(number)
        }))
    }
}

/// A stream that cannot be cut.
struct Pipe(Files);

impl IterableDataset for Pipe {
    type Item = i64;

    fn epoch(&self) -> Samples<'_, i64> {
        self.0.epoch()
    }

    fn set_epoch(&self, epoch: u64) {
        self.0.set_epoch(epoch);
    }

    fn known_len(&self) -> Option<usize> {
        self.0.known_len()
    }
}

fn numbers(batch: Result<Tensor>) -> Vec<i64> {
    Vec::try_from(batch.unwrap()).unwrap()
}

fn shard<D: IterableDataset<Item = i64> + 'static>(
    stream: D,
    (ranks, rank): (usize, usize),
    workers: usize,
    split_batches: bool,
) -> IterableDataLoaderShard<D> {
    let loader = IterableDataLoader::builder(stream)
        .batch_size(if split_batches { 4 } else { 2 })
        .num_workers(workers)
        .build()
        .unwrap();
    let options = ShardOptions {
        num_processes: NonZeroUsize::new(ranks).unwrap(),
        process_index: rank,
        split_batches,
        ..Default::default()
    };
    IterableDataLoaderShard::new(loader, options, None).unwrap()
}

/// A place in a run: what a checkpoint holds, and which batches are still to come.
type Stop = (DataLoaderState, usize, usize);

fn every_place_can_be_resumed<D: IterableDataset<Item = i64> + 'static>(
    what: &str,
    make: impl Fn(usize) -> IterableDataLoaderShard<D>,
) {
    for workers in 0..4 {
        let loader = make(workers);
        let (mut epochs, mut stops) = (Vec::<Vec<_>>::new(), Vec::<Stop>::new());
        for epoch in 0..EPOCHS as usize {
            stops.push((loader.state_dict().unwrap(), epoch, 0));
            let mut seen = Vec::new();
            for batch in &loader {
                seen.push(numbers(batch));
                stops.push((loader.state_dict().unwrap(), epoch, seen.len()));
            }
            assert!(seen.len() > 2, "{what}");
            epochs.push(seen);
        }
        assert_ne!(epochs[0], epochs[1], "{what}");
        for (number, (state, stopped_in, done)) in stops.iter().enumerate() {
            let text = serde_json::to_string(state).unwrap();
            let state: DataLoaderState = serde_json::from_str(&text).unwrap();
            // An epoch that has begun keeps its parts, whatever reads them.
            let other = (workers + number) % 4;
            let resumed = make(if state.in_epoch { other } else { workers });
            resumed.load_state_dict(&state).unwrap();
            assert_eq!(resumed.state_dict().unwrap(), state);
            let rest: Vec<_> = resumed.iter().map(numbers).collect();
            assert_eq!(
                rest,
                epochs[*stopped_in][*done..],
                "{what}, {workers} workers, stop {number}"
            );
            assert_eq!(resumed.iteration(), *stopped_in as u64 + 1);
        }
    }
}

#[test]
fn every_place_of_a_stream_can_be_resumed_with_any_number_of_workers() {
    let _turn = accelerate_testkit::turn();
    let lens = [3, 7, 2, 5];
    every_place_can_be_resumed("files", |workers| {
        shard(Files::new(&lens), (1, 0), workers, false)
    });
    for rank in [0, 1] {
        every_place_can_be_resumed("parts", |workers| {
            shard(Files::new(&lens), (2, rank), workers, false)
        });
        every_place_can_be_resumed("slices", |workers| {
            shard(Pipe(Files::new(&lens)), (2, rank), workers, false)
        });
        every_place_can_be_resumed("split", |workers| {
            shard(Pipe(Files::new(&lens)), (2, rank), workers, true)
        });
    }
}

#[test]
fn a_shared_stream_goes_on_with_another_number_of_ranks() {
    let on = |ranks, rank| shard(Pipe(Files::new(&[9, 11])), (ranks, rank), 0, false);
    let whole: Vec<_> = on(1, 0).iter().map(numbers).collect();
    let before = on(2, 0);
    let mut batches = before.iter();
    assert!(batches.next().is_some() && batches.next().is_some());
    // Two steps of two ranks: four batches.
    let state = before.state_dict().unwrap();
    let alone = on(1, 0);
    alone.load_state_dict(&state).unwrap();
    assert_eq!(alone.iter().map(numbers).collect::<Vec<_>>(), whole[4..]);
    let of_four: Vec<_> = (0..4)
        .map(|rank| {
            let loader = on(4, rank);
            loader.load_state_dict(&state).unwrap();
            numbers(loader.iter().next().unwrap())
        })
        .collect();
    assert_eq!(of_four, whole[4..8]);
    let refused = on(3, 0).load_state_dict(&state).unwrap_err().to_string();
    assert!(
        refused.contains("3 ranks share evenly, found 4"),
        "{refused}"
    );
}

#[test]
fn a_place_in_another_stream_is_refused() {
    let _turn = accelerate_testkit::turn();
    let lens = [3, 7, 2, 5];
    let parts = shard(Files::new(&lens), (2, 0), 0, false);
    assert!(parts.iter().next().is_some());
    let state = parts.state_dict().unwrap();
    let refusal = |error: Result<()>| match error.unwrap_err() {
        Error::StateMismatch { problems, .. } => problems.join("; "),
        other => other.to_string(),
    };
    let alone = shard(Files::new(&lens), (1, 0), 0, false);
    let text = refusal(alone.load_state_dict(&state));
    assert!(
        text.contains("found one in this rank's of 2 parts"),
        "{text}"
    );
    let longer = shard(Files::new(&[3, 7, 2, 6]), (2, 0), 0, false);
    let text = refusal(longer.load_state_dict(&state));
    assert!(
        text.contains("samples in an epoch `18`, found `17`"),
        "{text}"
    );
    let mut damaged = serde_json::to_value(&state).unwrap();
    damaged["stream"]["read"]["next"] = 7.into();
    let damaged: DataLoaderState = serde_json::from_value(damaged).unwrap();
    assert!(refusal(parts.load_state_dict(&damaged)).contains("other numbers"));
}

fn accelerator(dispatch: Option<bool>) -> Result<Accelerator> {
    Accelerator::builder()
        .cpu(true)
        .dataloader_config(DataLoaderConfiguration {
            dispatch_batches: dispatch,
            ..Default::default()
        })
        .build()
}

/// Goes through a loader that a new program makes at every place of a run.
fn resume_everywhere<S: BatchSource<Batch = Tensor>>(
    what: &str,
    make: impl Fn(usize) -> Result<PreparedLoader<S>>,
) -> Result<()> {
    let global = Generator::default_cpu()?;
    global.manual_seed(5)?;
    let loader = make(0)?;
    let (mut epochs, mut stops) = (Vec::<Vec<_>>::new(), Vec::<Stop>::new());
    let mut generators = Vec::new();
    for epoch in 0..EPOCHS as usize {
        stops.push((loader.state_dict()?, epoch, 0));
        generators.push(global.state()?);
        let mut seen = Vec::new();
        for batch in &loader {
            seen.push(numbers(batch));
            stops.push((loader.state_dict()?, epoch, seen.len()));
            generators.push(global.state()?);
        }
        assert!(seen.len() > 1, "{what}");
        epochs.push(seen);
    }
    for (number, (state, stopped_in, done)) in stops.iter().enumerate() {
        global.manual_seed(100 + number as u64)?;
        let resumed = make(number % 3)?;
        resumed.load_state_dict(state)?;
        assert_eq!(&resumed.state_dict()?, state);
        global.set_state(&generators[number])?;
        let mut done = *done;
        for (epoch, expected) in epochs.iter().enumerate().skip(*stopped_in) {
            let rest: Vec<_> = resumed.iter().map(numbers).collect();
            assert_eq!(
                rest,
                expected[done..],
                "{what}, stop {number}, epoch {epoch}"
            );
            done = 0;
        }
        assert_eq!(resumed.iteration(), EPOCHS);
    }
    Ok(())
}

#[test]
fn every_place_of_a_loader_that_rank_0_deals_out_can_be_resumed() {
    ranks(&[1, 2], |_: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true))?;
        resume_everywhere("map", |workers| {
            let data: Vec<i64> = (0..13).collect();
            let loader = DataLoader::builder(data)
                .batch_size(2)
                .shuffle(true)
                .seed(3)
                .num_workers(workers);
            accelerator.prepare(loader.build()?)
        })?;
        resume_everywhere("stream", |workers| {
            let loader = IterableDataLoader::builder(Files::new(&[5, 8]))
                .batch_size(2)
                .num_workers(workers.min(1));
            accelerator.prepare(loader.build()?)
        })?;
        accelerator.end_training()
    });
}

#[test]
fn ranks_that_are_through_with_their_part_can_be_resumed() {
    ranks(&[2], |_: Rank| -> Result<()> {
        let accelerator = accelerator(Some(false))?;
        // Rank 0 reads its three samples again and again while rank 1 reads on.
        resume_everywhere("uneven parts", |_| {
            let loader = IterableDataLoader::builder(Files::new(&[3, 17])).batch_size(2);
            accelerator.prepare(loader.build()?)
        })?;
        accelerator.end_training()
    });
}

#[test]
fn rank_0_reads_only_what_is_left_and_the_first_step() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true))?;
        let read = Arc::new(AtomicUsize::new(0));
        let make = || {
            let read = Arc::clone(&read);
            let data = FnDataset::new(40, move |index| {
                read.fetch_add(1, Ordering::SeqCst);
                Ok(index as i64)
            });
            accelerator.prepare(DataLoader::builder(data).batch_size(2).build()?)
        };
        let first = make()?;
        assert_eq!(first.iter().take(8).count(), 8);
        let state = first.state_dict()?;
        assert_eq!(state.batches, 16);
        read.store(0, Ordering::SeqCst);
        let resumed = make()?;
        resumed.load_state_dict(&state)?;
        assert_eq!(resumed.iter().count(), 2);
        // The first step with a batch that is read ahead, and the last two steps.
        let expected = if rank.index() == 0 { 6 + 8 } else { 0 };
        assert_eq!(read.load(Ordering::SeqCst), expected);
        // Both loaders are in reach of the accelerator.
        assert_eq!(accelerator.prepared_loaders().len(), 2);
        accelerator.end_training()
    });
}
