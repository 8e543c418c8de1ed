//! A loader that loads a position goes on as if it had never been interrupted.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use accelerate::Result;
use accelerate::data::{
    DataLoader, DataLoaderShard, DataLoaderState, FnDataset, LengthGroupedSampler, LoaderProgress,
    RandomSampler, ShardOptions, SubsetRandomSampler, WeightedRandomSampler, skip_first_batches,
};
use accelerate_torch::Generator;
use tch::Tensor;

type Shard = DataLoaderShard<Vec<i64>>;

const SAMPLES: i64 = 33;
const EPOCHS: u64 = 3;

fn global() -> Generator {
    Generator::default_cpu().unwrap()
}

fn numbers(batch: Result<Tensor>) -> Vec<i64> {
    Vec::try_from(batch.unwrap()).unwrap()
}

/// How the order of a loader comes about.
#[derive(Debug, Clone, Copy)]
enum Mode {
    Sequential,
    Shuffled,
    ShuffledOwn,
    Seedable,
    SeveralPermutations,
    Replacement,
    Weighted,
    WeightedOwn,
    Subset,
    LengthGrouped,
    Lists,
    DropLast,
    Split,
    Uneven,
}

const MODES: [Mode; 14] = [
    Mode::Sequential,
    Mode::Shuffled,
    Mode::ShuffledOwn,
    Mode::Seedable,
    Mode::SeveralPermutations,
    Mode::Replacement,
    Mode::Weighted,
    Mode::WeightedOwn,
    Mode::Subset,
    Mode::LengthGrouped,
    Mode::Lists,
    Mode::DropLast,
    Mode::Split,
    Mode::Uneven,
];

fn shard(mode: Mode, ranks: usize, rank: usize, workers: usize) -> Shard {
    let builder = DataLoader::builder((0..SAMPLES).collect::<Vec<_>>()).num_workers(workers);
    let sized = |builder: accelerate::data::DataLoaderBuilder<_, _>| builder.batch_size(4);
    let random = || RandomSampler::new(33).unwrap();
    let count = |n| NonZeroUsize::new(n).unwrap();
    let weighted = || {
        let weights: Vec<f64> = (1..34).map(f64::from).collect();
        WeightedRandomSampler::new(&weights, count(26)).unwrap()
    };
    let own = || Generator::new(5).unwrap();
    let builder = match mode {
        Mode::Sequential | Mode::Uneven => sized(builder),
        Mode::Shuffled | Mode::Seedable | Mode::Split => sized(builder).shuffle(true),
        Mode::ShuffledOwn => sized(builder).shuffle(true).seed(3),
        Mode::SeveralPermutations => {
            sized(builder).sampler(random().generator(own()).num_samples(count(80)))
        }
        Mode::Replacement => sized(builder).sampler(
            random()
                .generator(own())
                .num_samples(count(70))
                .with_replacement(),
        ),
        Mode::Weighted => sized(builder).sampler(weighted()),
        Mode::WeightedOwn => {
            sized(builder).sampler(weighted().without_replacement().unwrap().generator(own()))
        }
        Mode::Subset => sized(builder).sampler(SubsetRandomSampler::new((3..20).collect())),
        Mode::LengthGrouped => {
            let lengths = (0..33).map(|index| index * 7 % 10).collect();
            sized(builder).sampler(LengthGroupedSampler::new(lengths, count(4)).unwrap())
        }
        Mode::Lists => builder.batch_sampler(vec![
            vec![1usize, 2, 3],
            vec![4],
            vec![5, 6],
            vec![7],
            vec![8],
        ]),
        Mode::DropLast => sized(builder).shuffle(true).drop_last(true),
    };
    let options = ShardOptions {
        num_processes: count(ranks),
        process_index: rank,
        use_seedable_sampler: matches!(mode, Mode::Seedable),
        split_batches: matches!(mode, Mode::Split),
        even_batches: !matches!(mode, Mode::Uneven),
        ..Default::default()
    };
    DataLoaderShard::new(builder.build().unwrap(), options).unwrap()
}

/// A place in a run: what a checkpoint holds, and which batches are still to come.
struct Stop {
    state: DataLoaderState,
    global: Tensor,
    epochs_done: usize,
    batches_done: usize,
}

fn stop(loader: &Shard, epochs_done: usize, batches_done: usize) -> Stop {
    Stop {
        state: loader.state_dict().unwrap(),
        global: global().state().unwrap(),
        epochs_done,
        batches_done,
    }
}

/// All batches of an uninterrupted run by epoch, and every place it can be stopped at.
fn uninterrupted(loader: &Shard) -> (Vec<Vec<Vec<i64>>>, Vec<Stop>) {
    let (mut epochs, mut stops) = (Vec::new(), Vec::new());
    for epoch in 0..EPOCHS as usize {
        stops.push(stop(loader, epoch, 0));
        let mut seen = Vec::new();
        for batch in loader {
            seen.push(numbers(batch));
            // A model draws too, as for dropout.
            global().random_i64().unwrap();
            stops.push(stop(loader, epoch, seen.len()));
        }
        epochs.push(seen);
    }
    stops.push(stop(loader, EPOCHS as usize, 0));
    (epochs, stops)
}

#[test]
fn every_place_of_every_order_can_be_resumed() {
    let _turn = accelerate_testkit::turn();
    for mode in MODES {
        for (ranks, rank) in [(1, 0), (2, 0), (2, 1)] {
            let seed = || global().manual_seed(42).unwrap();
            seed();
            let (expected, stops) = uninterrupted(&shard(mode, ranks, rank, 0));
            for (number, stop) in stops.iter().enumerate() {
                // Another program: other draws before, another number of workers.
                global().manual_seed(1000 + number as u64).unwrap();
                let resumed = shard(mode, ranks, rank, number % 3);
                resumed.load_state_dict(&stop.state).unwrap();
                assert_eq!(resumed.state_dict().unwrap(), stop.state);
                global().set_state(&stop.global).unwrap();
                let (mut epoch, mut done) = (stop.epochs_done, stop.batches_done);
                assert_eq!(resumed.iteration(), epoch as u64);
                while epoch < EPOCHS as usize {
                    let mut seen = Vec::new();
                    for batch in &resumed {
                        seen.push(numbers(batch));
                        global().random_i64().unwrap();
                    }
                    assert_eq!(
                        seen,
                        expected[epoch][done..],
                        "{mode:?}, rank {rank} of {ranks}, stop {number}, epoch {epoch}"
                    );
                    (epoch, done) = (epoch + 1, 0);
                    assert_eq!(resumed.iteration(), epoch as u64);
                }
            }
        }
    }
}

#[test]
fn a_resumed_loop_can_be_stopped_again() {
    let _turn = accelerate_testkit::turn();
    global().manual_seed(1).unwrap();
    let whole: Vec<_> = shard(Mode::ShuffledOwn, 1, 0, 0)
        .iter()
        .map(numbers)
        .collect();
    let mut state = shard(Mode::ShuffledOwn, 1, 0, 2).state_dict().unwrap();
    for expected in &whole {
        let loader = shard(Mode::ShuffledOwn, 1, 0, 2);
        loader.load_state_dict(&state).unwrap();
        assert_eq!(&numbers(loader.iter().next().unwrap()), expected);
        state = loader.state_dict().unwrap();
    }
    assert_eq!((state.batches, state.in_epoch), (whole.len(), true));
}

#[test]
fn a_state_survives_being_written_as_text() {
    let _turn = accelerate_testkit::turn();
    for mode in [Mode::Shuffled, Mode::Lists, Mode::WeightedOwn] {
        let loader = shard(mode, 2, 0, 0);
        let mut batches = loader.iter();
        assert!(batches.next().unwrap().is_ok());
        let state = loader.state_dict().unwrap();
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(
            serde_json::from_str::<DataLoaderState>(&text).unwrap(),
            state
        );
    }
}

#[test]
fn only_what_was_handed_out_counts_whatever_is_read_ahead() {
    let _turn = accelerate_testkit::turn();
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let data = FnDataset::new(40, move |index| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(index)
    });
    let loader = DataLoader::builder(data)
        .batch_size(2)
        .num_workers(2)
        .prefetch_factor(4)
        .build()
        .unwrap();
    let options = ShardOptions {
        num_processes: NonZeroUsize::new(2).unwrap(),
        ..Default::default()
    };
    let loader = DataLoaderShard::new(loader, options).unwrap();
    assert_eq!(loader.state_dict().unwrap().batches, 0);
    let mut batches = loader.iter();
    for steps in 1..=3 {
        assert!(batches.next().unwrap().is_ok());
        // Both ranks were handed out one batch at each step.
        assert_eq!(loader.state_dict().unwrap().batches, 2 * steps);
    }
    drop(batches);
    assert!(read.load(Ordering::SeqCst) > 6);
    assert_eq!(loader.state_dict().unwrap().batches, 6);
}

#[test]
fn samples_that_were_seen_are_not_read_again() {
    let _turn = accelerate_testkit::turn();
    let read = Arc::new(Mutex::new(Vec::new()));
    let make = |read: &Arc<Mutex<Vec<usize>>>| {
        let read = Arc::clone(read);
        let data = FnDataset::new(12, move |index| {
            read.lock().unwrap().push(index);
            Ok(index)
        });
        let loader = DataLoader::builder(data).batch_size(2).build().unwrap();
        DataLoaderShard::new(loader, ShardOptions::default()).unwrap()
    };
    let first = make(&read);
    assert_eq!(first.iter().take(4).count(), 4);
    let state = first.state_dict().unwrap();
    read.lock().unwrap().clear();
    let resumed = make(&read);
    resumed.load_state_dict(&state).unwrap();
    assert_eq!(resumed.iter().count(), 2);
    assert_eq!(*read.lock().unwrap(), [8, 9, 10, 11]);
}

#[test]
fn a_loop_that_was_left_begins_afresh_unless_its_state_is_loaded() {
    let _turn = accelerate_testkit::turn();
    let loader = shard(Mode::Seedable, 1, 0, 0);
    let whole: Vec<_> = loader.iter().map(numbers).collect();
    loader.set_epoch(0);
    assert_eq!(loader.iter().take(3).count(), 3);
    let state = loader.state_dict().unwrap();
    assert_eq!(loader.iter().map(numbers).collect::<Vec<_>>(), whole);
    // The same epoch goes on, another one begins afresh.
    for (epoch, left) in [(0, whole.len() - 3), (1, whole.len())] {
        loader.load_state_dict(&state).unwrap();
        loader.set_epoch(epoch);
        let seen: Vec<_> = loader.iter().map(numbers).collect();
        assert_eq!(seen.len(), left);
        assert_eq!(seen[..] == whole[3..], epoch == 0);
        assert_eq!(loader.iteration(), epoch + 1);
    }
}

/// What all ranks together see, with repetitions trimmed as metrics are.
fn seen_by_all(shards: &[Shard], progress: &[LoaderProgress]) -> Vec<i64> {
    let mut loops: Vec<_> = shards.iter().map(|shard| shard.iter()).collect();
    let mut kept = Vec::new();
    loop {
        let step: Vec<_> = loops
            .iter_mut()
            .map(|own| own.next().map(numbers))
            .collect();
        if step.iter().all(Option::is_none) {
            return kept;
        }
        let mut all: Vec<i64> = step.into_iter().flat_map(Option::unwrap).collect();
        let end = progress[0].end_of_dataloader();
        if let Some(samples) = progress[0].remainder().filter(|&rest| end && rest > 0) {
            all.truncate(samples);
        }
        kept.extend(all);
    }
}

#[test]
fn another_number_of_ranks_goes_on_with_the_same_samples() {
    let _turn = accelerate_testkit::turn();
    let on = |ranks: usize| -> (Vec<Shard>, Vec<LoaderProgress>) {
        let progress: Vec<_> = (0..ranks).map(|_| LoaderProgress::new()).collect();
        let shards = progress.iter().enumerate().map(|(rank, progress)| {
            let loader = DataLoader::builder((0..SAMPLES).collect::<Vec<_>>())
                .batch_size(2)
                .shuffle(true)
                .build()
                .unwrap();
            let options = ShardOptions {
                num_processes: NonZeroUsize::new(ranks).unwrap(),
                process_index: rank,
                use_seedable_sampler: true,
                data_seed: Some(11),
                progress: progress.clone(),
                ..Default::default()
            };
            DataLoaderShard::new(loader, options).unwrap()
        });
        (shards.collect(), progress)
    };
    let (alone, progress) = on(1);
    let order = seen_by_all(&alone, &progress);
    assert_eq!(order.len(), 33);
    for before in 1..=4 {
        for after in 1..=4 {
            for steps in 0..=3 {
                let (shards, _) = on(before);
                let state = {
                    let mut batches = shards[0].iter();
                    assert_eq!(batches.by_ref().take(steps).count(), steps);
                    shards[0].state_dict().unwrap()
                };
                let (resumed, progress) = on(after);
                for shard in &resumed {
                    shard.load_state_dict(&state).unwrap();
                }
                let seen = seen_by_all(&resumed, &progress);
                let done = 2 * before * steps;
                assert_eq!(seen, order[done..], "{before} to {after} ranks at {steps}");
            }
        }
    }
}

#[test]
fn what_is_skipped_counts_as_handed_out() {
    let _turn = accelerate_testkit::turn();
    let loader = shard(Mode::Seedable, 2, 1, 0);
    let whole: Vec<_> = loader.iter().map(numbers).collect();
    loader.set_epoch(0);
    let mut rest = skip_first_batches(&loader, 2).into_iter();
    assert_eq!(numbers(rest.next().unwrap()), whole[2]);
    let state = loader.state_dict().unwrap();
    assert_eq!(state.batches, 6);
    drop(rest);
    let resumed = shard(Mode::Seedable, 2, 1, 0);
    resumed.load_state_dict(&state).unwrap();
    let rest = skip_first_batches(&resumed, 1);
    assert_eq!(
        rest.into_iter().map(numbers).collect::<Vec<_>>(),
        whole[4..]
    );
    assert_eq!(resumed.iteration(), 1);
}

#[test]
fn the_state_of_another_loader_is_refused() {
    let _turn = accelerate_testkit::turn();
    let state = shard(Mode::Seedable, 1, 0, 0).state_dict().unwrap();
    let refusal = |loader: &Shard, state: &DataLoaderState| {
        let error = loader.load_state_dict(state).unwrap_err();
        assert_eq!(
            loader.iter().count(),
            loader.len(),
            "the loader is unchanged"
        );
        error.to_string()
    };
    let message = refusal(&shard(Mode::Subset, 1, 0, 0), &state);
    assert!(
        message.contains("samples in an epoch `17`, found `33`"),
        "{message}"
    );
    let message = refusal(&shard(Mode::Sequential, 1, 0, 0), &state);
    assert!(message.contains("generator of the sampler"), "{message}");

    let text = serde_json::to_string(&state).unwrap();
    let mut damaged: serde_json::Value = serde_json::from_str(&text).unwrap();
    damaged["generators"]["sampler"] = "00ff".into();
    let damaged: DataLoaderState = serde_json::from_value(damaged).unwrap();
    let message = refusal(&shard(Mode::Seedable, 1, 0, 0), &damaged);
    assert!(message.contains("state of a generator"), "{message}");
    let odd = text.replacen("\"sampler\":\"", "\"sampler\":\"x", 1);
    assert!(serde_json::from_str::<DataLoaderState>(&odd).is_err());
}
