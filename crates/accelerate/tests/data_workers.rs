//! Workers that do not deliver, and workers that stay.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use accelerate::data::{
    DataLoader, FnDataset, FnIterableDataset, IterableDataLoader, IterableDataset, Samples,
    worker_info,
};
use accelerate::{Error, Result};
use tch::Tensor;

const SHORT: Duration = Duration::from_millis(200);

fn numbers(batch: Result<Tensor>) -> Vec<i64> {
    Vec::try_from(batch.unwrap()).unwrap()
}

/// Sleeps at one sample.
fn slow(at: usize, index: usize) -> i64 {
    if index == at {
        thread::sleep(Duration::from_secs(4));
    }
    index as i64
}

fn timeout_of(batch: Option<Result<Tensor>>) -> (usize, String) {
    match batch.unwrap().unwrap_err() {
        Error::WorkerTimeout { worker, doing, .. } => (worker, doing),
        other => (usize::MAX, other.to_string()),
    }
}

#[test]
fn a_worker_that_does_not_deliver_in_time_is_named_with_what_it_reads() {
    let begin = Instant::now();
    let loader = DataLoader::builder(FnDataset::new(8, |index| Ok(slow(5, index))))
        .batch_size(2)
        .num_workers(2)
        .timeout(SHORT)
        .build()
        .unwrap();
    let mut batches = loader.iter();
    assert_eq!(numbers(batches.next().unwrap()), [0, 1]);
    assert_eq!(numbers(batches.next().unwrap()), [2, 3]);
    // The third batch is that of worker 0.
    let found = timeout_of(batches.next());
    assert_eq!(found, (0, "reading sample 5".to_owned()));
    assert!(batches.next().is_none());
    drop(batches);
    drop(loader);
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "it was waited for"
    );
}

#[test]
fn a_worker_of_a_stream_that_does_not_deliver_in_time_is_named() {
    let begin = Instant::now();
    let stream = FnIterableDataset::new(|| (0..8usize).map(|index| Ok(slow(3, index))));
    let loader = IterableDataLoader::builder(stream)
        .batch_size(2)
        .num_workers(1)
        .timeout(SHORT)
        .build()
        .unwrap();
    let mut batches = loader.iter();
    assert_eq!(numbers(batches.next().unwrap()), [0, 1]);
    let found = timeout_of(batches.next());
    assert_eq!(found, (0, "reading sample 3".to_owned()));
    assert!(batches.next().is_none());
    drop(batches);
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "it was waited for"
    );
}

#[test]
fn settings_of_workers_need_workers() {
    let data = || DataLoader::builder(vec![1i64, 2]);
    let refused = |built: Result<DataLoader<Vec<i64>>>| built.unwrap_err().to_string();
    let text = refused(data().persistent_workers(true).build());
    assert!(
        text.contains("`num_workers` above 0 for `persistent_workers`"),
        "{text}"
    );
    let text = refused(data().timeout(SHORT).build());
    assert!(text.contains("for a `timeout`"), "{text}");
    let text = refused(data().num_workers(1).timeout(Duration::ZERO).build());
    assert!(text.contains("a `timeout` above 0"), "{text}");
    assert!(data().num_workers(1).timeout(SHORT).build().is_ok());
}

/// Who read what: threads and seeds, by epoch.
#[derive(Default, Clone)]
struct Readers(Arc<Mutex<Vec<(ThreadId, u64)>>>);

impl Readers {
    fn note(&self) {
        let seed = worker_info().map_or(0, |info| info.seed);
        self.0.lock().unwrap().push((thread::current().id(), seed));
    }

    /// The threads and the seeds since the last call.
    fn take(&self) -> (HashSet<ThreadId>, HashSet<u64>) {
        self.0.lock().unwrap().drain(..).unzip()
    }
}

#[test]
fn workers_that_stay_are_the_same_threads_in_every_epoch_with_new_seeds() {
    for stays in [true, false] {
        let readers = Readers::default();
        let noted = readers.clone();
        let data = FnDataset::new(12, move |index| {
            noted.note();
            Ok(index as i64)
        });
        let loader = DataLoader::builder(data)
            .batch_size(2)
            .num_workers(3)
            .persistent_workers(stays)
            .build()
            .unwrap();
        let order: Vec<_> = loader.iter().map(numbers).collect();
        let (threads, seeds) = readers.take();
        assert_eq!((threads.len(), seeds.len()), (3, 3));
        // A loop that is left early leaves nothing behind for the next.
        assert_eq!(
            loader.iter().map(numbers).take(1).collect::<Vec<_>>(),
            order[..1]
        );
        let (again, _) = readers.take();
        assert_eq!(again.is_subset(&threads), stays);
        for _ in 0..2 {
            assert_eq!(loader.iter().map(numbers).collect::<Vec<_>>(), order);
            let (again, new_seeds) = readers.take();
            assert_eq!(again == threads, stays);
            assert!(new_seeds.is_disjoint(&seeds));
        }
        // Two loops at a time have workers of their own.
        let mut first = loader.iter();
        let second: Vec<_> = loader.iter().map(numbers).collect();
        assert_eq!(numbers(first.next().unwrap()), order[0]);
        assert_eq!(second, order);
    }
}

/// Two files, with a note of who reads.
struct Noted(Readers);

impl IterableDataset for Noted {
    type Item = i64;

    fn epoch(&self) -> Samples<'_, i64> {
        self.shard(1, 0)
    }

    fn num_shards(&self) -> usize {
        2
    }

    fn shard(&self, num: usize, index: usize) -> Samples<'_, i64> {
        let numbers = (0..20i64).skip(index).step_by(num);
        Box::new(numbers.map(|number| {
            self.0.note();
            Ok(number)
        }))
    }
}

#[test]
fn workers_of_a_stream_may_stay_too() {
    for stays in [true, false] {
        let readers = Readers::default();
        let loader = IterableDataLoader::builder(Noted(readers.clone()))
            .batch_size(2)
            .num_workers(2)
            .persistent_workers(stays)
            .build()
            .unwrap();
        let order: Vec<_> = loader.iter().map(numbers).collect();
        assert_eq!(order[..2], [[0, 2], [1, 3]]);
        let (threads, seeds) = readers.take();
        assert_eq!((threads.len(), seeds.len()), (2, 2));
        assert_eq!(
            loader.iter().map(numbers).take(1).collect::<Vec<_>>(),
            order[..1]
        );
        // What was under way of the loop that was left may still be noted.
        assert_eq!(loader.iter().map(numbers).collect::<Vec<_>>(), order);
        let (again, _) = readers.take();
        assert_eq!(again == threads, stays);
    }
}

#[test]
fn an_error_does_not_cost_the_workers_that_stay() {
    let data = FnDataset::new(6, |index| match index {
        2 => Err(Error::data("damaged")),
        _ => Ok(index as i64),
    });
    let loader = DataLoader::builder(data)
        .batch_size(1)
        .num_workers(2)
        .persistent_workers(true)
        .build()
        .unwrap();
    for _ in 0..2 {
        let batches: Vec<_> = loader.iter().map(|batch| batch.is_ok()).collect();
        assert_eq!(batches, [true, true, false, true, true, true]);
    }
}
