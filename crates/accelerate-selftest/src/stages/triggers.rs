//! Triggers: set on one rank, seen on all.

use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("nobody sets it", nobody),
    Step::new("any rank sets it", any_rank),
];

fn nobody(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let found = probe.accelerator.check_trigger()?;
    probe.equal("a trigger that nobody set", false, found);
    Ok(())
}

/// Everybody sees it once, whoever set it.
fn any_rank(probe: &mut Probe<'_>) -> Result<(), Failure> {
    for rank in 0..probe.world() {
        if rank == probe.rank() {
            probe.accelerator.set_trigger();
        }
        let first = probe.accelerator.check_trigger()?;
        let second = probe.accelerator.check_trigger()?;
        probe.equal(format!("the trigger set by rank {rank}"), true, first);
        probe.equal(
            format!("the same, once it was seen ({rank})"),
            false,
            second,
        );
    }
    Ok(())
}
