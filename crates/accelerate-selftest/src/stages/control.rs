//! Who does what, and who waits for whom.

use accelerate::PartialState;
use accelerate::state::ProcessTurn;

use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("wait for everyone", wait_for_everyone),
    Step::new("main process first", main_first),
    Step::new("local main process first", local_main_first),
    Step::new("on one process", on_one_process),
];

/// Nobody passes before all have come.
fn wait_for_everyone(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let world = i64::try_from(probe.world()).unwrap_or(i64::MAX);
    for round in 0..3 {
        let key = format!("control/come/{round}");
        probe.board.count(&key, 1)?;
        probe.accelerator.wait_for_everyone()?;
        let come = probe.board.count(&key, 0)?;
        probe.equal(
            format!("ranks that have come in round {round}"),
            world,
            come,
        );
    }
    Ok(())
}

fn main_first(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let is_first = probe.accelerator.is_main_process();
    goes_first(probe, "main", is_first, 1, PartialState::main_process_first)
}

fn local_main_first(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let is_first = probe.accelerator.is_local_main_process();
    let machines: i64 = probe
        .of_all_ranks(&[i64::from(is_first)])?
        .into_iter()
        .flatten()
        .sum();
    let begin = PartialState::local_main_process_first;
    goes_first(probe, "local", is_first, machines, begin)
}

/// Who is not first finds the work of all that are done, and those find nobody before them.
fn goes_first(
    probe: &mut Probe<'_>,
    name: &str,
    is_first: bool,
    firsts: i64,
    begin: fn(&PartialState) -> accelerate::Result<ProcessTurn>,
) -> Result<(), Failure> {
    let (first, late) = (
        format!("control/{name}/first"),
        format!("control/{name}/late"),
    );
    let turn = begin(probe.accelerator.state())?;
    if is_first {
        let early = probe.board.count(&late, 0)?;
        probe.equal("others that went before", 0, early);
        probe.board.count(&first, 1)?;
    } else {
        let done = probe.board.count(&first, 0)?;
        probe.equal("first processes that are done", firsts, done);
        probe.board.count(&late, 1)?;
    }
    turn.end()?;
    probe.accelerator.wait_for_everyone()?;
    Ok(())
}

/// Work for one rank runs there and nowhere else.
fn on_one_process(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let state = probe.accelerator.state();
    let (rank, world) = (probe.rank(), probe.world());
    let local = state.local_process_index();
    let ran = [
        state.on_main_process(|| ()).is_some(),
        state.on_local_main_process(|| ()).is_some(),
        state.on_last_process(|| ()).is_some(),
        state.on_process(world - 1, || ()).is_some(),
    ];
    let due = [rank == 0, local == 0, rank + 1 == world, rank + 1 == world];
    probe.equal(
        "work for the main, local main, last and one process",
        due,
        ran,
    );
    Ok(())
}
