//! The library's operations on nested values, on one process too.

use accelerate::collectives::{self, Reduction};
use accelerate::tch::Tensor;

use super::collectives::{multiples, of_rank};
use crate::failure::Failure;
use crate::probe::{Probe, values};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("gather", gather),
    Step::new("reduce", reduce),
    Step::new("broadcast", broadcast),
    Step::new("pad and gather", pad),
];

/// A scalar beside a list, and something that is no tensor.
type Nested = (Tensor, Vec<Tensor>, i64);

fn nested(probe: &Probe<'_>, rank: usize) -> Result<Nested, Failure> {
    let scalar = Tensor::from((rank + 1) as f32).f_to_device(probe.device())?;
    Ok((
        scalar,
        vec![of_rank(probe, rank, 2)?, of_rank(probe, rank, 3)?],
        7,
    ))
}

fn of_all(world: usize, length: usize) -> Vec<f64> {
    (0..world)
        .flat_map(|rank| multiples(rank, length))
        .collect()
}

fn gather(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let own = nested(probe, probe.rank())?;
    let state = probe.accelerator.state();
    let (scalar, list, number) = collectives::gather(state, own)?;
    probe.holds("scalars", &of_all(probe.world(), 1), &scalar)?;
    for (tensor, length) in list.iter().zip(2..) {
        probe.holds("tensors", &of_all(probe.world(), length), tensor)?;
    }
    probe.equal("what is no tensor", 7, number);
    Ok(())
}

fn reduce(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let world = probe.world() as f64;
    let sum = world * (world + 1.0) / 2.0;
    for (reduction, name, factor) in [
        (Reduction::Sum, "sum", sum),
        (Reduction::Mean, "mean", sum / world),
        (Reduction::Max, "maximum", world),
    ] {
        let own = nested(probe, probe.rank())?;
        let kept = own.0.shallow_clone();
        let (scalar, list, _) = collectives::reduce(probe.accelerator.state(), own, reduction)?;
        let expected = |length| multiples(0, length).map(|value| value * factor);
        for (tensor, length) in [&scalar, &list[0], &list[1]].into_iter().zip(1..) {
            let expected: Vec<f64> = expected(length).collect();
            let expected = Tensor::f_from_slice(&expected)?.f_reshape(tensor.size().as_slice())?;
            probe.close(name, &expected, tensor, 1e-6)?;
        }
        let unchanged = [(probe.rank() + 1) as f64];
        probe.holds("input that others hold", &unchanged, &kept)?;
    }
    Ok(())
}

fn broadcast(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let root = probe.world() - 1;
    let own = nested(probe, probe.rank())?;
    let (scalar, list, _) = collectives::broadcast(probe.accelerator.state(), own, root)?;
    for (tensor, length) in [&scalar, &list[0], &list[1]].into_iter().zip(1..) {
        let expected: Vec<f64> = multiples(root, length).collect();
        probe.holds("tensor of the last rank", &expected, tensor)?;
    }
    Ok(())
}

/// Tensors of different lengths become as long as the longest, at either end.
fn pad(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let (own, world) = (probe.rank(), probe.world());
    for first in [false, true] {
        let tensor = of_rank(probe, own, own + 1)?;
        let state = probe.accelerator.state();
        let padded = collectives::pad_across_processes(state, tensor, 0, -5.0, first)?;
        let all = collectives::gather(state, padded)?;
        let expected: Vec<f64> = (0..world)
            .flat_map(|rank| row(rank, world, first))
            .collect();
        probe.equal("rows of all ranks", expected, values(&all)?);
    }
    Ok(())
}

fn row(rank: usize, world: usize, first: bool) -> Vec<f64> {
    let filling = vec![-5.0; world - rank - 1];
    let own: Vec<f64> = multiples(rank, rank + 1).collect();
    match first {
        true => [filling, own].concat(),
        false => [own, filling].concat(),
    }
}
