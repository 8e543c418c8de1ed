//! Communication hooks of the reducer.

use std::sync::{Arc, Mutex};

use accelerate_torch::{
    Error, Future, ProcessGroup, ReduceOp, Reducer, ReducerOptions, Result, autograd,
};
use tch::{Kind, Tensor};

use crate::network::{Network, assert_equal, backward, expected, gradients, input, leaf};
use crate::support::{Outcome, float, numbers, on_ranks, real};

#[test]
fn hooks_communicate_gradients() {
    on_ranks!(
        a_hook_communicates_every_bucket,
        a_hook_changes_what_it_returns,
        compressed_gradients_are_those_of_the_original,
        compressed_steps_stay_equal_over_ranks,
        a_reducer_takes_one_hook,
        a_failing_hook_fails_the_backward_pass,
        a_panicking_hook_fails_the_backward_pass,
        a_failing_future_of_a_hook_fails_the_backward_pass,
    );
}

const SIZES: [i64; 4] = [8, 16, 16, 4];

fn rows(group: &ProcessGroup, step: usize) -> Result<Tensor> {
    input(group.rank(), step, 4, SIZES[0])
}

fn reducer(group: &ProcessGroup, network: &Network) -> Result<Reducer> {
    let options = ReducerOptions {
        bucket_bytes: 64,
        first_bucket_bytes: 64,
        ..ReducerOptions::default()
    };
    Reducer::new(group, &network.parameters(), &options)
}

fn a_hook_communicates_every_bucket(group: &ProcessGroup) -> Outcome {
    let network = Network::new(&SIZES)?;
    let mut reducer = reducer(group, &network)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (of_hook, log) = (group.clone(), Arc::clone(&seen));
    let ranks = i64::try_from(group.size())?;
    reducer.set_hook(move |bucket| {
        let buffer = bucket.buffer()?;
        let shapes: Vec<_> = bucket.parameters()?.iter().map(Tensor::size).collect();
        assert_eq!(
            shapes,
            bucket
                .gradients()?
                .iter()
                .map(Tensor::size)
                .collect::<Vec<_>>()
        );
        let values: usize = bucket.gradients()?.iter().map(Tensor::numel).sum();
        assert_eq!(values, buffer.numel());
        log.lock()
            .map_err(|e| e.to_string())?
            .push((bucket.index(), bucket.is_last()));
        let divided = buffer.shallow_clone().f_div_scalar_(ranks)?;
        let sum = of_hook
            .all_reduce_async(&divided, ReduceOp::Sum)?
            .future()?;
        Ok(sum.then(Ok)?)
    })?;
    for step in 0..3 {
        network.reduced_step(&reducer, &rows(group, step)?)?;
        let found = gradients(&network.tensors())?;
        assert_equal(
            group,
            &found,
            &expected(group, &SIZES, &rows(group, step)?)?,
        )?;
        network.clear_gradients()?;
    }
    let seen = seen.lock().map_err(|e| e.to_string())?;
    // One bucket at first; then every layer has its own, the last layer's comes first.
    let rebuilt: Vec<_> = seen[1..].to_vec();
    assert_eq!(seen[0], (0, true));
    assert!(
        rebuilt.len() >= 6 && rebuilt.len().is_multiple_of(2),
        "{rebuilt:?}"
    );
    let one_step = rebuilt.len() / 2;
    for (number, &entry) in rebuilt.iter().enumerate() {
        let bucket = number % one_step;
        assert_eq!(entry, (bucket, bucket == one_step - 1));
    }
    Ok(())
}

fn a_hook_changes_what_it_returns(group: &ProcessGroup) -> Outcome {
    let network = Network::new(&SIZES)?;
    let mut reducer = reducer(group, &network)?;
    reducer.set_hook(|bucket| Ok(Future::completed(&bucket.buffer()?.f_full_like(3)?)?))?;
    network.reduced_step(&reducer, &rows(group, 0)?)?;
    for gradient in gradients(&network.tensors())? {
        assert!(numbers(&gradient)?.iter().all(|&value| value == 3.0));
    }
    Ok(())
}

/// The gradient of a 6 by 5 weight on a rank, as in the table of measured values.
fn measured_gradient(rank: usize) -> Result<Tensor> {
    let slope = if rank == 0 { 0.25 } else { -0.125 };
    let values: Vec<f64> = (0..6)
        .flat_map(|i| (0..5).map(move |j| (i, j)))
        .map(|(i, j)| {
            let diagonal = if i == j { real(rank + 1) } else { 0.0 };
            real((i + 1) * (j + 1)) / 10.0 + (real(i) - real(j)) * slope + diagonal
        })
        .collect();
    Ok(float(&values)?.f_view([6, 5])?)
}

/// Sum, norm and three entries of the reduced gradient.
fn measured(group: &ProcessGroup, kind: Option<Kind>) -> Result<[f64; 5]> {
    let weight = leaf(&[6, 5], 0.4)?;
    let named = [("weight".to_owned(), weight.shallow_clone())];
    let mut reducer = Reducer::new(group, &named, &ReducerOptions::default())?;
    if let Some(kind) = kind {
        reducer.compress(kind)?;
    }
    reducer.prepare_for_forward()?;
    let loss = weight
        .f_mul(&measured_gradient(group.rank())?)?
        .f_sum(None::<Kind>)?;
    reducer.prepare_for_backward(&[])?;
    backward(&loss)?;
    let gradient = gradients(&[weight])?.remove(0);
    let all = numbers(&gradient)?;
    let norm = all.iter().map(|value| value * value).sum::<f64>().sqrt();
    Ok([
        all.iter().sum(),
        norm,
        all[0],
        all[5 * 5 + 3],
        all[2 * 5 + 4],
    ])
}

fn compressed_gradients_are_those_of_the_original(group: &ProcessGroup) -> Outcome {
    if group.size() != 2 {
        return Ok(());
    }
    for (kind, expected) in [
        (None, [39.937500, 9.001693, 1.600000, 2.525000, 1.375000]),
        (
            Some(Kind::Half),
            [39.937622, 9.001833, 1.599609, 2.525391, 1.375000],
        ),
        (
            Some(Kind::BFloat16),
            [39.946289, 9.003542, 1.593750, 2.531250, 1.375000],
        ),
    ] {
        let found = measured(group, kind)?;
        for (found, expected) in found.iter().zip(expected) {
            // The table has six decimals, and its sums were added in float32.
            assert!(
                (found - expected).abs() < 5e-6,
                "{kind:?}: {found}, not {expected}"
            );
        }
    }
    Ok(())
}

fn compressed_steps_stay_equal_over_ranks(group: &ProcessGroup) -> Outcome {
    for kind in [Kind::Half, Kind::BFloat16] {
        let network = Network::new(&SIZES)?;
        let mut reducer = reducer(group, &network)?;
        reducer.compress(kind)?;
        for step in 0..3 {
            network.clear_gradients()?;
            network.reduced_step(&reducer, &rows(group, step)?)?;
        }
        let averages = expected(group, &SIZES, &rows(group, 2)?)?;
        for (found, average) in gradients(&network.tensors())?.iter().zip(&averages) {
            assert_eq!(found.kind(), Kind::Float);
            assert!(found.f_allclose(average, 3e-2, 3e-3, false)?, "{kind:?}");
            let of_first = found.f_detach_copy()?;
            group.broadcast(&of_first, 0)?;
            assert!(of_first.f_equal(found)?, "{kind:?}: ranks differ");
        }
    }
    Ok(())
}

fn a_reducer_takes_one_hook(group: &ProcessGroup) -> Outcome {
    let network = Network::new(&SIZES)?;
    let mut reducer = reducer(group, &network)?;
    let error = reducer.compress(Kind::Int64).unwrap_err();
    assert!(
        error.to_string().contains("Half or BFloat16, found Int64"),
        "{error}"
    );
    reducer.compress(Kind::Half)?;
    for error in [
        reducer.compress(Kind::BFloat16).unwrap_err(),
        reducer
            .set_hook(|bucket| Ok(Future::completed(&bucket.buffer()?)?))
            .unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Argument { .. }), "{error:?}");
        assert!(error.to_string().contains("found a second one"), "{error}");
    }
    // The first one is still there.
    network.reduced_step(&reducer, &rows(group, 0)?)?;
    assert!(autograd::grad(&network.tensors()[0])?.is_some());
    Ok(())
}

/// What a backward pass fails with when every rank's hook ends like this.
fn failing(
    group: &ProcessGroup,
    hook: impl FnMut(&accelerate_torch::GradBucket) -> Result<Future, accelerate_torch::BoxError>
    + Send
    + 'static,
) -> Result<Error> {
    let network = Network::new(&SIZES)?;
    let mut reducer = reducer(group, &network)?;
    reducer.set_hook(hook)?;
    let error = network
        .reduced_step(&reducer, &rows(group, 0)?)
        .unwrap_err();
    drop(reducer);
    // The group is not left hanging.
    let tensor = float(&[1.0])?;
    group.all_reduce(&tensor, ReduceOp::Sum)?;
    assert_eq!(numbers(&tensor)?, [real(group.size())]);
    Ok(error)
}

fn a_failing_hook_fails_the_backward_pass(group: &ProcessGroup) -> Outcome {
    let error = failing(group, |_| Err("no room".into()))?;
    assert!(
        matches!(
            &error,
            Error::Callback {
                operation: "backward",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("no room"), "{error}");
    let source = std::error::Error::source(&error).ok_or("the cause")?;
    assert_eq!(source.to_string(), "no room");
    Ok(())
}

fn a_panicking_hook_fails_the_backward_pass(group: &ProcessGroup) -> Outcome {
    let error = failing(group, |_| panic!("too hot"))?;
    assert!(
        matches!(&error, Error::CallbackPanicked { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("too hot"), "{error}");
    Ok(())
}

fn a_failing_future_of_a_hook_fails_the_backward_pass(group: &ProcessGroup) -> Outcome {
    let error = failing(group, |bucket| {
        let future = Future::completed(&bucket.buffer()?)?;
        Ok(future.then(|_| Err("lost on the way".into()))?)
    })?;
    assert!(error.to_string().contains("lost on the way"), "{error}");
    let error = failing(group, |bucket| {
        let future = Future::completed(&bucket.buffer()?)?;
        Ok(future.then(|_| panic!("burnt on the way"))?)
    })?;
    assert!(error.to_string().contains("burnt on the way"), "{error}");
    let error = failing(group, |_| {
        let (promise, future) = accelerate_torch::promise(None)?;
        drop(promise);
        Ok(future)
    })?;
    assert!(
        error.to_string().contains("dropped without a value"),
        "{error}"
    );
    Ok(())
}
