//! Lists cut between processes.

use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("even list", even),
    Step::new("uneven list", uneven),
    Step::new("uneven list with padding", padded),
];

fn even(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let list: Vec<usize> = (0..2 * probe.world()).collect();
    let part = probe.accelerator.split_between_processes(list, false)?;
    let first = 2 * probe.rank();
    probe.equal("part of an even list", vec![first, first + 1], part.items);
    Ok(())
}

/// One item more than two for each: rank 0 gets it.
fn uneven(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let list: Vec<usize> = (0..=2 * probe.world()).collect();
    let part = probe.accelerator.split_between_processes(list, false)?;
    let expected = part_of_uneven(probe.rank());
    probe.equal("part of an uneven list", expected, part.items);
    Ok(())
}

/// Whoever has less repeats the last item of the list.
fn padded(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let last = 2 * probe.world();
    let list: Vec<usize> = (0..=last).collect();
    let part = probe.accelerator.split_between_processes(list, true)?;
    let mut expected = part_of_uneven(probe.rank());
    probe.equal("real items of a padded part", expected.len(), part.real);
    expected.resize(3, last);
    probe.equal("padded part of an uneven list", expected, part.items);
    Ok(())
}

fn part_of_uneven(rank: usize) -> Vec<usize> {
    match rank {
        0 => vec![0, 1, 2],
        _ => vec![2 * rank + 1, 2 * rank + 2],
    }
}
