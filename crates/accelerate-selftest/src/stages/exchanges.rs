//! What ranks send to each other outside of the plain collectives: pairs, objects, sub-groups.

use accelerate::tch::Tensor;
use accelerate_torch::ReduceOp;

use super::collectives::{empty, for_target, multiples, of_rank, reduced_for_target};
use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("send and receive", send_and_receive),
    Step::new("exchanged all-gather", all_gather),
    Step::new("exchanged reduce-scatter", reduce_scatter),
    Step::new("objects of all", objects_of_all),
    Step::new("object of one", object_of_one),
    Step::new("any", any),
    Step::new("sub-group", sub_group),
];

/// Around the ring, once in each direction.
fn send_and_receive(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let (own, world) = (probe.rank(), probe.world());
    for (tag, step) in (0..).zip([1, world - 1]) {
        let (to, from) = ((own + step) % world, (own + world - step) % world);
        let (sent, received) = (of_rank(probe, own, 3)?, empty(probe, 3)?);
        // Where sending blocks, half of the ranks have to begin with receiving.
        if own.is_multiple_of(2) {
            let sending = group.send_async(&sent, to, tag)?;
            group.receive(&received, from, tag)?;
            sending.wait()?;
        } else {
            let receiving = group.receive_async(&received, from, tag)?;
            group.send(&sent, to, tag)?;
            receiving.wait()?;
        }
        let expected: Vec<f64> = multiples(from, 3).collect();
        probe.holds(format!("tensor of rank {from}"), &expected, &received)?;
    }
    Ok(())
}

fn all_gather(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let output = empty(probe, 3 * probe.world())?;
    let own = of_rank(probe, probe.rank(), 3)?;
    group.exchange_all_gather_async(&output, &own)?.wait()?;
    let expected: Vec<f64> = (0..probe.world())
        .flat_map(|rank| multiples(rank, 3))
        .collect();
    probe.holds("parts of all ranks", &expected, &output)
}

fn reduce_scatter(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for (op, name) in [(ReduceOp::Sum, "sum"), (ReduceOp::Avg, "average")] {
        let inputs = (0..probe.world())
            .map(|target| for_target(probe, target))
            .collect::<Result<Vec<_>, _>>()?;
        let input = Tensor::f_cat(&inputs, 0)?;
        let (output, room) = (empty(probe, 2)?, empty(probe, 2 * (probe.world() - 1))?);
        group
            .exchange_reduce_scatter_async(&output, &input, &room, op)?
            .wait()?;
        let expected = Tensor::f_from_slice(&reduced_for_target(probe, op))?;
        probe.close(name, &expected, &output, 1e-6)?;
    }
    Ok(())
}

/// Bytes of a length that differs from rank to rank, and is nothing on the first.
fn objects_of_all(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let object = |rank: usize| "rank ".repeat(rank).into_bytes();
    let found = group.all_gather_bytes(&object(probe.rank()))?;
    let expected: Vec<Vec<u8>> = (0..probe.world()).map(object).collect();
    probe.equal("objects of all ranks", expected, found);
    Ok(())
}

fn object_of_one(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    for root in 0..probe.world() {
        let object = |rank: usize| format!("from rank {rank}").into_bytes();
        let found = group.broadcast_bytes(&object(probe.rank()), root)?;
        probe.equal(format!("object of rank {root}"), object(root), found);
    }
    Ok(())
}

fn any(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let is_last = probe.rank() + 1 == probe.world();
    let one = group.any(is_last)?;
    let none = group.any(false)?;
    probe.equal(
        "a condition on the last rank, and on none",
        [true, false],
        [one, none],
    );
    Ok(())
}

/// Ranks with an even number add up among themselves.
fn sub_group(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let group = probe.group()?;
    let even: Vec<usize> = (0..probe.world()).step_by(2).collect();
    let sub = group.subgroup(&even)?;
    probe.equal("membership", probe.rank().is_multiple_of(2), sub.is_some());
    if let Some(sub) = sub {
        let tensor = of_rank(probe, probe.rank(), 2)?;
        sub.all_reduce(&tensor, ReduceOp::Sum)?;
        let sum: usize = even.iter().map(|rank| rank + 1).sum();
        probe.holds(
            "sum of even ranks",
            &[sum as f64, (2 * sum) as f64],
            &tensor,
        )?;
    }
    Ok(())
}
