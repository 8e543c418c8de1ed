//! The parts of a training loop on one process, one module each.
//!
//! `cargo bench --package accelerate-rs --bench training_core -- loader` runs those with `loader`
//! in their name, which is `area/operation/size`; with `--test` each runs once. How they compare
//! with the original: `cargo xtask bench-peers --training-core`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a bench may panic")]

mod accumulation;
mod collate;
mod loader;
mod optimizer;
mod sampler;
mod tree;
#[path = "../../examples/training_core/workload.rs"]
mod workload;

use criterion::Criterion;

fn main() {
    // One thread, as on the other side of comparisons; all of it is on the CPU.
    tch::set_num_threads(1);
    let mut criterion = Criterion::default().configure_from_args();
    sampler::bench(&mut criterion);
    collate::bench(&mut criterion);
    loader::bench(&mut criterion);
    tree::bench(&mut criterion);
    optimizer::bench(&mut criterion);
    accumulation::bench(&mut criterion);
    criterion.final_summary();
}
