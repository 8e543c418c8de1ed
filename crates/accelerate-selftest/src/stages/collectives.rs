//! The operations of a group, each against values that are computed here.
//!
//! Rank `r` brings values made of `r + 1`, so that every rank's part can be told from the result.

use accelerate::tch::{Kind, Tensor};
use accelerate_torch::{MIB, ReduceOp};

use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("all-reduce", all_reduce),
    Step::new("reduce", reduce),
    Step::new("broadcast", broadcast),
    Step::new("broadcast of many", broadcast_many),
    Step::new("all-gather", all_gather),
    Step::new("all-gather into one", all_gather_into_one),
    Step::new("gather", gather),
    Step::new("scatter", scatter),
    Step::new("reduce-scatter", reduce_scatter),
    Step::new("reduce-scatter of one", reduce_scatter_of_one),
    Step::new("all-to-all", all_to_all),
    Step::new("barrier", barrier),
];

const REDUCTIONS: [(ReduceOp, &str); 5] = [
    (ReduceOp::Sum, "sum"),
    (ReduceOp::Avg, "average"),
    (ReduceOp::Min, "minimum"),
    (ReduceOp::Max, "maximum"),
    (ReduceOp::Product, "product"),
];

/// `r + 1`, and every multiple of it up to `length`.
pub(super) fn of_rank(probe: &Probe<'_>, rank: usize, length: usize) -> Result<Tensor, Failure> {
    let values: Vec<f32> = multiples(rank, length).map(|value| value as f32).collect();
    Ok(Tensor::f_from_slice(&values)?.f_to_device(probe.device())?)
}

pub(super) fn multiples(rank: usize, length: usize) -> impl Iterator<Item = f64> {
    (1..=length).map(move |factor| ((rank + 1) * factor) as f64)
}

pub(super) fn empty(probe: &Probe<'_>, length: usize) -> Result<Tensor, Failure> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    Ok(Tensor::f_full(
        [length],
        -1.0,
        (Kind::Float, probe.device()),
    )?)
}

fn one_for_each_rank(probe: &Probe<'_>, length: usize) -> Result<Vec<Tensor>, Failure> {
    (0..probe.world()).map(|_| empty(probe, length)).collect()
}

/// What a reduction makes of the multiples of all ranks.
fn reduced(op: ReduceOp, world: usize, length: usize) -> Vec<f64> {
    let ranks = |factor: usize| (0..world).map(move |rank| ((rank + 1) * factor) as f64);
    let of_one = |factor| match op {
        ReduceOp::Avg => ranks(factor).sum::<f64>() / world as f64,
        ReduceOp::Product => ranks(factor).product(),
        ReduceOp::Min => ranks(factor).fold(f64::INFINITY, f64::min),
        ReduceOp::Max => ranks(factor).fold(f64::NEG_INFINITY, f64::max),
        _ => ranks(factor).sum(),
    };
    (1..=length).map(of_one).collect()
}

/// Values of any size are near what they should be; small whole ones are exact.
fn compare(
    probe: &mut Probe<'_>,
    what: &str,
    expected: &[f64],
    found: &Tensor,
) -> Result<(), Failure> {
    probe.close(what, &Tensor::f_from_slice(expected)?, found, 1e-6)
}

fn all_reduce(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for (op, name) in REDUCTIONS {
        let tensor = of_rank(probe, probe.rank(), 3)?;
        group.all_reduce(&tensor, op)?;
        compare(probe, name, &reduced(op, probe.world(), 3), &tensor)?;
    }
    let whole = Tensor::f_from_slice(&[i64::MAX / 4, 1])?.f_to_device(probe.device())?;
    group.all_reduce(&whole, ReduceOp::Max)?;
    let kept = whole.f_int64_value(&[0])?;
    probe.equal("maximum of large whole numbers", i64::MAX / 4, kept);
    Ok(())
}

fn reduce(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for root in 0..probe.world() {
        for (op, name) in REDUCTIONS {
            let tensor = of_rank(probe, probe.rank(), 2)?;
            group.reduce(&tensor, root, op)?;
            if probe.rank() == root {
                compare(probe, name, &reduced(op, probe.world(), 2), &tensor)?;
            }
        }
    }
    Ok(())
}

fn broadcast(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for root in 0..probe.world() {
        let tensor = of_rank(probe, probe.rank(), 4)?;
        group.broadcast(&tensor, root)?;
        let expected: Vec<f64> = multiples(root, 4).collect();
        probe.holds(format!("tensor of rank {root}"), &expected, &tensor)?;
    }
    Ok(())
}

/// Tensors of several kinds, more of them than go into one buffer.
fn broadcast_many(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let root = probe.world() - 1;
    let kinds = [Kind::Float, Kind::Int64, Kind::Float, Kind::Half];
    let tensors = kinds
        .iter()
        .zip(1..)
        .map(|(&kind, length)| Ok(of_rank(probe, probe.rank(), length)?.f_to_kind(kind)?))
        .collect::<Result<Vec<_>, Failure>>()?;
    group.broadcast_coalesced(&tensors, MIB, root)?;
    for (tensor, length) in tensors.iter().zip(1..) {
        let expected: Vec<f64> = multiples(root, length).collect();
        probe.holds(format!("tensor {length}"), &expected, tensor)?;
    }
    Ok(())
}

fn all_gather(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let outputs = one_for_each_rank(probe, 3)?;
    group.all_gather(&outputs, &of_rank(probe, probe.rank(), 3)?)?;
    each_holds_its_rank(probe, &outputs, 3)
}

fn each_holds_its_rank(
    probe: &mut Probe<'_>,
    outputs: &[Tensor],
    length: usize,
) -> Result<(), Failure> {
    for (rank, output) in outputs.iter().enumerate() {
        let expected: Vec<f64> = multiples(rank, length).collect();
        probe.holds(format!("part of rank {rank}"), &expected, output)?;
    }
    Ok(())
}

fn all_gather_into_one(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let output = empty(probe, 3 * probe.world())?;
    group.all_gather_into_tensor(&output, &of_rank(probe, probe.rank(), 3)?)?;
    let expected: Vec<f64> = (0..probe.world())
        .flat_map(|rank| multiples(rank, 3))
        .collect();
    probe.holds("parts of all ranks", &expected, &output)
}

fn gather(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for root in 0..probe.world() {
        let outputs = match probe.rank() == root {
            true => one_for_each_rank(probe, 2)?,
            false => Vec::new(),
        };
        group.gather(&outputs, &of_rank(probe, probe.rank(), 2)?, root)?;
        each_holds_its_rank(probe, &outputs, 2)?;
    }
    Ok(())
}

fn scatter(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for root in 0..probe.world() {
        let inputs = match probe.rank() == root {
            true => (0..probe.world())
                .map(|rank| of_rank(probe, rank + root, 2))
                .collect::<Result<Vec<_>, _>>()?,
            false => Vec::new(),
        };
        let output = empty(probe, 2)?;
        group.scatter(&output, &inputs, root)?;
        let expected: Vec<f64> = multiples(probe.rank() + root, 2).collect();
        probe.holds(format!("part from rank {root}"), &expected, &output)?;
    }
    Ok(())
}

/// Rank `r` gets the reduction of what all ranks bring for it: their own multiples plus nothing.
fn reduce_scatter(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for (op, name) in [(ReduceOp::Sum, "sum"), (ReduceOp::Avg, "average")] {
        let inputs = (0..probe.world())
            .map(|target| for_target(probe, target))
            .collect::<Result<Vec<_>, _>>()?;
        let output = empty(probe, 2)?;
        group.reduce_scatter(&output, &inputs, op)?;
        let expected = reduced_for_target(probe, op);
        compare(probe, name, &expected, &output)?;
    }
    Ok(())
}

fn reduce_scatter_of_one(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for (op, name) in [(ReduceOp::Sum, "sum"), (ReduceOp::Avg, "average")] {
        let inputs = (0..probe.world())
            .map(|target| for_target(probe, target))
            .collect::<Result<Vec<_>, _>>()?;
        let output = empty(probe, 2)?;
        group.reduce_scatter_tensor(&output, &Tensor::f_cat(&inputs, 0)?, op)?;
        let expected = reduced_for_target(probe, op);
        compare(probe, name, &expected, &output)?;
    }
    Ok(())
}

/// What this rank brings for rank `target`: its multiples, times `target + 1`.
pub(super) fn for_target(probe: &Probe<'_>, target: usize) -> Result<Tensor, Failure> {
    let own = of_rank(probe, probe.rank(), 2)?;
    Ok(own.f_mul_scalar((target + 1) as f64)?)
}

/// What this rank gets of that from all ranks.
pub(super) fn reduced_for_target(probe: &Probe<'_>, op: ReduceOp) -> Vec<f64> {
    let factor = (probe.rank() + 1) as f64;
    let of_all = reduced(op, probe.world(), 2);
    of_all.into_iter().map(|value| value * factor).collect()
}

/// Every rank sends every other one a part of another length.
fn all_to_all(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let own = probe.rank();
    let inputs = (0..probe.world())
        .map(|target| of_rank(probe, own, target + 1))
        .collect::<Result<Vec<_>, _>>()?;
    let outputs = one_for_each_rank(probe, own + 1)?;
    group.all_to_all(&outputs, &inputs)?;
    each_holds_its_rank(probe, &outputs, own + 1)?;

    let lengths: Vec<i64> = (1..).take(probe.world()).collect();
    let received = vec![i64::try_from(own + 1).unwrap_or(i64::MAX); probe.world()];
    let output = empty(probe, (own + 1) * probe.world())?;
    group.all_to_all_single(&output, &Tensor::f_cat(&inputs, 0)?, &received, &lengths)?;
    let expected: Vec<f64> = (0..probe.world())
        .flat_map(|rank| multiples(rank, own + 1))
        .collect();
    probe.holds("parts in one tensor", &expected, &output)
}

fn barrier(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let world = i64::try_from(probe.world()).unwrap_or(i64::MAX);
    for round in 0..3 {
        let key = format!("collectives/barrier/{round}");
        probe.board.count(&key, 1)?;
        probe.accelerator.wait_for_everyone()?;
        let come = probe.board.count(&key, 0)?;
        probe.equal(
            format!("ranks before the barrier in round {round}"),
            world,
            come,
        );
    }
    Ok(())
}
