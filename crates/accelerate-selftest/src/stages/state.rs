//! Who is who.

use accelerate::tch::Device;
use rustix::{process, system};

use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("introduction", introduce),
    Step::new("ranks", ranks),
    Step::new("versions", versions),
];

/// The libtorch that this program was built with, and is to run with.
const LIBTORCH: &str = env!("SELFTEST_LIBTORCH_VERSION");

/// One line for each rank.
fn introduce(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let state = probe.accelerator.state();
    let device = match state.device() {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(index) => format!("cuda:{index}"),
        other => format!("{other:?}").to_lowercase(),
    };
    probe.note(format!(
        "rank {} of {}: local rank {} on {}, {device}, libtorch {LIBTORCH}, process {}",
        state.process_index(),
        state.num_processes(),
        state.local_process_index(),
        host(),
        process::getpid().as_raw_nonzero(),
    ));
    Ok(())
}

/// All ranks agree on how many they are, and no two have one number.
fn ranks(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let state = probe.accelerator.state();
    let (rank, world) = (probe.rank(), probe.world());
    let own = [rank, world, state.local_process_index()].map(number);
    let told = probe.of_all_ranks(&own)?;
    probe.equal("number of ranks that answer", world, told.len());
    for (rank, theirs) in (0..).zip(&told) {
        probe.equal(
            format!("rank and world size of rank {rank}"),
            &[number(rank), number(world)][..],
            theirs.get(..2).unwrap_or_default(),
        );
    }
    probe.equal(
        "main process",
        rank == 0,
        probe.accelerator.is_main_process(),
    );
    probe.equal(
        "last process",
        rank + 1 == world,
        probe.accelerator.is_last_process(),
    );
    Ok(())
}

/// All ranks run the same program with the same libtorch.
fn versions(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let own = format!(
        "accelerate {}, libtorch {LIBTORCH}",
        env!("CARGO_PKG_VERSION")
    );
    let bytes: Vec<i64> = own.bytes().map(i64::from).collect();
    let told = probe.of_all_ranks(&bytes)?;
    let first = told.first().cloned().unwrap_or_default();
    let text = |bytes: &[i64]| {
        let bytes = bytes.iter().filter_map(|&byte| u8::try_from(byte).ok());
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    };
    probe.equal("versions, as on rank 0", text(&first), own);
    Ok(())
}

fn host() -> String {
    system::uname().nodename().to_string_lossy().into_owned()
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
