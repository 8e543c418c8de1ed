//! The loader: worker threads, what they report, and what a loader refuses.
#![forbid(unsafe_code)]

use std::error::Error as _;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerate::data::{
    BatchSampler, DataLoader, FnDataset, SequentialSampler, TensorDataset, worker_info,
};
use accelerate::{Error, Result};
use tch::Tensor;

/// Counts the values that are alive, wherever they are.
#[derive(Clone)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn numbers(batch: &Tensor) -> Vec<i64> {
    Vec::try_from(batch).unwrap_or_default()
}

#[test]
fn batches_come_in_order_for_any_number_of_workers() {
    for num_workers in [0, 1, 2, 3, 50] {
        for prefetch_factor in [1, 2, 5] {
            let loader = DataLoader::builder((0..23i64).collect::<Vec<_>>())
                .batch_size(4)
                .num_workers(num_workers)
                .prefetch_factor(prefetch_factor)
                .build()
                .unwrap();
            for _epoch in 0..2 {
                let seen: Vec<_> = loader
                    .iter()
                    .map(|batch| numbers(&batch.unwrap()))
                    .collect();
                assert_eq!(seen.len(), loader.len());
                assert_eq!(seen.last().unwrap(), &[20, 21, 22]);
                assert!(seen.concat().into_iter().eq(0..23));
            }
        }
    }
}

#[test]
fn no_more_batches_are_made_ahead_than_allowed() {
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let data = FnDataset::new(100, move |index| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(index)
    });
    let loader = DataLoader::builder(data)
        .num_workers(2)
        .prefetch_factor(3)
        .build()
        .unwrap();
    let mut batches = loader.iter();
    for handed_out in 1..20 {
        assert!(batches.next().unwrap().is_ok());
        assert!(read.load(Ordering::SeqCst) <= handed_out + 2 * 3);
    }
}

#[test]
fn leaving_early_ends_the_workers() {
    let alive = Arc::new(AtomicUsize::new(0));
    let read = Arc::new(AtomicUsize::new(0));
    let (data_alive, count) = (Arc::clone(&alive), Arc::clone(&read));
    // Each thread that reads holds a value that is dropped when the thread ends.
    thread_local! {
        static HELD: std::cell::RefCell<Option<Counted>> = const { std::cell::RefCell::new(None) };
    }
    let data = FnDataset::new(100_000, move |index| {
        HELD.with_borrow_mut(|held| {
            held.get_or_insert_with(|| Counted::new(&data_alive));
        });
        count.fetch_add(1, Ordering::SeqCst);
        Ok(index)
    });
    let loader = DataLoader::builder(data)
        .batch_size(1000)
        .num_workers(3)
        .prefetch_factor(10)
        .build()
        .unwrap();
    let mut batches = loader.iter();
    assert!(batches.next().unwrap().is_ok());
    assert!(alive.load(Ordering::SeqCst) > 0);
    drop(batches);
    assert_eq!(
        alive.load(Ordering::SeqCst),
        0,
        "a worker outlived its epoch"
    );
    let after = read.load(Ordering::SeqCst);
    assert!(after < 100_000);
    std::thread::yield_now();
    assert_eq!(
        read.load(Ordering::SeqCst),
        after,
        "a worker goes on reading"
    );
}

/// A data set that fails at one index.
fn failing(at: usize) -> impl accelerate::data::Dataset<Item = i64> + 'static {
    FnDataset::new(10, move |index| {
        if index == at {
            return Err(Error::data("the file is damaged"));
        }
        Ok(i64::try_from(index).unwrap_or_default())
    })
}

#[test]
fn an_error_names_the_sample() {
    for num_workers in [0, 2] {
        let builder = DataLoader::builder(failing(5))
            .batch_size(2)
            .num_workers(num_workers);
        let loader = builder.build().unwrap();
        let outcomes: Vec<_> = loader.iter().collect();
        assert_eq!(outcomes.len(), 5);
        for (place, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Ok(_) => assert_ne!(place, 2),
                Err(error @ Error::Sample { index: 5, .. }) => {
                    assert_eq!(place, 2);
                    let cause = error.source().and_then(|source| source.source()).unwrap();
                    assert_eq!(cause.to_string(), "the file is damaged");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_panic_in_a_worker_is_an_error() {
    let data = FnDataset::new(4, |index| {
        assert!(index != 3, "sample {index} is cursed");
        Ok(index)
    });
    let loader = DataLoader::builder(data)
        .batch_size(2)
        .num_workers(2)
        .build()
        .unwrap();
    let outcomes: Vec<_> = loader.iter().collect();
    assert!(outcomes[0].is_ok());
    let message = outcomes[1].as_ref().unwrap_err().to_string();
    assert!(
        message.contains("sample 3 ") && message.contains("is cursed"),
        "{message}"
    );
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn failures_of_collation_name_the_samples() {
    let collate = |items: Vec<i64>| -> Result<Tensor> {
        match items.as_slice() {
            [2, 3] => Err(Error::data("not these")),
            [4, 5] => panic!("never these"),
            others => Ok(Tensor::from_slice(others)),
        }
    };
    let loader = DataLoader::builder((0..6i64).collect::<Vec<_>>())
        .batch_size(2)
        .collate(collate)
        .num_workers(1)
        .build()
        .unwrap();
    let outcomes: Vec<_> = loader.iter().collect();
    assert!(outcomes[0].is_ok());
    assert!(matches!(&outcomes[1], Err(Error::Collate { indices, .. }) if indices == &[2, 3]));
    let message = outcomes[2].as_ref().unwrap_err().to_string();
    assert!(
        message.contains("[4, 5]") && message.contains("never these"),
        "{message}"
    );
}

#[test]
fn workers_know_who_they_are() {
    let data = FnDataset::new(6, |_| {
        let info = worker_info().ok_or_else(|| Error::data("not in a worker"))?;
        Ok((info.id, info.num_workers, info.seed.cast_signed()))
    });
    let loader = DataLoader::builder(data)
        .num_workers(2)
        .seed(5)
        .build()
        .unwrap();
    let seen: Vec<_> = loader
        .iter()
        .map(|batch| {
            let (id, workers, seed) = batch.unwrap();
            (numbers(&id)[0], numbers(&workers)[0], numbers(&seed)[0])
        })
        .collect();
    let base = accelerate_torch::Generator::new(5)
        .unwrap()
        .random_i64()
        .unwrap();
    for (place, &(id, workers, seed)) in (0i64..).zip(&seen) {
        assert_eq!((id, workers, seed), (place % 2, 2, base.wrapping_add(id)));
    }
    assert_eq!(worker_info(), None);
}

#[test]
fn tensors_can_be_read_by_workers() {
    let rows = Tensor::arange(12, (tch::Kind::Int64, tch::Device::Cpu)).view([6, 2]);
    let labels = Tensor::arange(6, (tch::Kind::Int64, tch::Device::Cpu));
    let data = TensorDataset::new([rows, labels]).unwrap();
    let loader = DataLoader::builder(data)
        .batch_size(4)
        .num_workers(2)
        .build()
        .unwrap();
    let batches: Vec<_> = loader.iter().map(|batch| batch.unwrap()).collect();
    assert_eq!(batches[0][0].size(), [4, 2]);
    assert_eq!(numbers(&batches[1][1]), [4, 5]);
}

#[test]
fn a_seed_fixes_every_epoch() {
    let epochs = |seed| {
        let data: Vec<i64> = (0..20).collect();
        let loader = DataLoader::builder(data)
            .batch_size(3)
            .shuffle(true)
            .seed(seed)
            .build();
        let loader = loader.unwrap();
        let epoch = || {
            loader
                .iter()
                .flat_map(|batch| numbers(&batch.unwrap()))
                .collect::<Vec<_>>()
        };
        (epoch(), epoch())
    };
    assert_eq!(epochs(1), epochs(1));
    let (first, second) = epochs(1);
    assert_ne!(first, second);
    assert_ne!(epochs(1), epochs(2));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let data = || vec![1i64, 2, 3];
    let batches = || {
        let size = NonZeroUsize::new(2).unwrap();
        BatchSampler::new(SequentialSampler::new(3), size, false)
    };
    let refused = [
        (
            DataLoader::builder(Vec::<i64>::new()).build(),
            "empty data set",
        ),
        (
            DataLoader::builder(data()).batch_size(0).build(),
            "batch_size",
        ),
        (
            DataLoader::builder(data()).prefetch_factor(0).build(),
            "prefetch_factor",
        ),
        (
            DataLoader::builder(data())
                .batch_sampler(batches())
                .shuffle(true)
                .build(),
            "shuffle",
        ),
        (
            DataLoader::builder(data())
                .batch_sampler(batches())
                .batch_size(2)
                .build(),
            "batch_size",
        ),
        (
            DataLoader::builder(data())
                .sampler(SequentialSampler::new(3))
                .shuffle(true)
                .build(),
            "shuffle",
        ),
        (
            DataLoader::builder(data())
                .generator(accelerate_torch::Generator::new(1).unwrap())
                .seed(1)
                .build(),
            "seed",
        ),
    ];
    for (outcome, named) in refused {
        let message = outcome.map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(named), "{message} should name {named}");
    }
    assert!(
        DataLoader::builder(data())
            .batch_sampler(batches())
            .build()
            .is_ok()
    );
}

#[test]
fn a_sampler_that_fails_is_reported_in_its_place() {
    struct Broken;
    impl accelerate::data::Sampler for Broken {
        fn len(&self) -> usize {
            4
        }
        fn epoch(&self) -> accelerate::data::Indices<'_> {
            Box::new((0..4).map(|index| match index {
                3 => Err(Error::data("no more numbers")),
                index => Ok(index),
            }))
        }
    }
    for num_workers in [0, 2] {
        let data = vec![1i64, 2, 3, 4];
        let builder = DataLoader::builder(data).batch_size(2).sampler(Broken);
        let loader = builder.num_workers(num_workers).build().unwrap();
        let outcomes: Vec<_> = loader.iter().collect();
        assert_eq!(outcomes.len(), 2);
        assert!(outcomes[0].is_ok() && matches!(outcomes[1], Err(Error::Data(_))));
    }
}
