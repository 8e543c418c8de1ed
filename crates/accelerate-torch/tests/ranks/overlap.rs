//! Communication beside computation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use accelerate_testkit::ranks;
use accelerate_torch::{
    BoxError, Future, GradBucket, ProcessGroup, ReduceOp, Reducer, ReducerOptions, Result,
    autograd, promise,
};
use tch::Tensor;

use crate::network::{Network, gradients, input};
use crate::support::{Outcome, join, on_worlds};

/// What is added to the communication of every bucket.
const DELAY: Duration = Duration::from_millis(20);
const WIDTH: i64 = 320;
const LAYERS: usize = 8;

fn layer_buckets() -> ReducerOptions {
    let layer = usize::try_from(WIDTH * WIDTH * 4).unwrap_or(usize::MAX);
    ReducerOptions {
        bucket_bytes: layer,
        first_bucket_bytes: layer,
        ..ReducerOptions::default()
    }
}

/// Averages a bucket and takes its time; nothing else runs meanwhile.
fn in_line(group: &ProcessGroup, bucket: &GradBucket) -> Result<Future, BoxError> {
    let buffer = bucket.buffer()?;
    let work = group.all_reduce_async(&buffer, ReduceOp::Sum)?;
    thread::sleep(DELAY);
    work.wait()?;
    Ok(Future::completed(&divided(&buffer, group.size())?)?)
}

/// The same on a thread of its own.
fn beside(group: &ProcessGroup, bucket: &GradBucket) -> Result<Future, BoxError> {
    let buffer = bucket.buffer()?;
    let (promise, future) = promise(Some(&buffer))?;
    let work = group.all_reduce_async(&buffer, ReduceOp::Sum)?;
    let ranks = group.size();
    thread::spawn(move || {
        thread::sleep(DELAY);
        match work.wait().and_then(|()| divided(&buffer, ranks)) {
            Ok(average) => promise.complete(&average),
            Err(error) => promise.fail(error),
        }
    });
    Ok(future)
}

fn divided(buffer: &Tensor, ranks: usize) -> Result<Tensor> {
    Ok(buffer
        .shallow_clone()
        .f_div_scalar_(i64::try_from(ranks).unwrap_or(i64::MAX))?)
}

type Delayed = fn(&ProcessGroup, &GradBucket) -> Result<Future, BoxError>;

/// The median time of a step under a hook, its number of buckets, and the last gradients.
fn median_step(group: &ProcessGroup, hook: Delayed) -> Result<(Duration, usize, Vec<Tensor>)> {
    let network = Network::new(&[WIDTH; LAYERS + 1])?;
    let mut reducer = Reducer::new(group, &network.parameters(), &layer_buckets())?;
    let (of_hook, buckets) = (group.clone(), Arc::new(AtomicUsize::new(0)));
    let highest = Arc::clone(&buckets);
    reducer.set_hook(move |bucket| {
        highest.store(bucket.index() + 1, Ordering::Relaxed);
        hook(&of_hook, bucket)
    })?;
    let rows = input(group.rank(), 0, WIDTH, WIDTH)?;
    // The first step has one bucket, the second may still wait for memory.
    for _ in 0..2 {
        network.clear_gradients()?;
        network.reduced_step(&reducer, &rows)?;
    }
    let mut times = Vec::new();
    for _ in 0..5 {
        network.clear_gradients()?;
        group.barrier()?;
        let start = Instant::now();
        network.reduced_step(&reducer, &rows)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let count = buckets.load(Ordering::Relaxed);
    Ok((
        times[times.len() / 2],
        count,
        gradients(&network.tensors())?,
    ))
}

#[test]
fn communication_overlaps_computation() {
    ranks(&[2], |rank| -> Outcome {
        let group = join(rank)?;
        let (serial, buckets, expected) = median_step(&group, in_line)?;
        let (overlapped, again, found) = median_step(&group, beside)?;
        println!("{buckets} buckets: {serial:?} in line, {overlapped:?} beside the computation");
        assert!(buckets >= 6 && buckets == again, "{buckets} buckets");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.f_equal(expected)?);
        }
        assert!(
            overlapped + 2 * DELAY < serial,
            "a step with {buckets} buckets took {overlapped:?}, and {serial:?} one after another"
        );
        group.barrier()?;
        Ok(())
    });
}

/// No clock is needed to see it: the last layer's bucket is on its way before the first
/// layer's gradient exists.
#[test]
fn buckets_leave_before_the_backward_pass_is_over() {
    on_worlds(&[2, 3], |group| {
        let network = Network::new(&[16; 5])?;
        let options = ReducerOptions {
            bucket_bytes: 64,
            first_bucket_bytes: 64,
            ..ReducerOptions::default()
        };
        let mut reducer = Reducer::new(group, &network.parameters(), &options)?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let (of_hook, log) = (group.clone(), Arc::clone(&events));
        reducer.set_hook(move |bucket| {
            log.lock()
                .map_err(|e| e.to_string())?
                .push(format!("bucket {}", bucket.index()));
            let sum = of_hook.all_reduce_async(&bucket.buffer()?, ReduceOp::Sum)?;
            Ok(sum.future()?)
        })?;
        let log = Arc::clone(&events);
        let first_layer = network.tensors().remove(0);
        let _hook = autograd::on_gradient(&first_layer, move |_| {
            log.lock()
                .map_err(|e| e.to_string())?
                .push("first layer".to_owned());
            Ok(None)
        })?;
        for step in 0..3 {
            events.lock().map_err(|e| e.to_string())?.clear();
            network.reduced_step(&reducer, &input(group.rank(), step, 4, 16)?)?;
        }
        let events = events.lock().map_err(|e| e.to_string())?;
        let at = |wanted: &str| events.iter().position(|event| event == wanted);
        assert!(
            at("bucket 2") < at("first layer") && at("bucket 2").is_some(),
            "{events:?}"
        );
        Ok(())
    });
}
