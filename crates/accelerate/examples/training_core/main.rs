//! The parts of a training loop one by one, without a model's own work.
//!
//! ```text
//! cargo run --release --example training_core -- loader --bench-json PATH
//! ```
//!
//! `loader` and `step` run on one process, `gather` and `accumulate` on two. Each rank writes
//! what it measured to `PATH.rank0.json` and so on. The Python side is
//! `tests/parity/bench_training_core.py`; `cargo xtask bench-peers --training-core` runs both.
//!
//! `checkpoint` takes `--folder FOLDER --megabytes N` more and uses all threads; its Python side is
//! `tests/parity/bench_checkpoint.py`, and `cargo xtask bench-peers --checkpoint` runs both.
#![forbid(unsafe_code)]

mod accumulate;
mod checkpoint;
mod gather;
mod loader;
mod measures;
mod step;
mod workload;

use std::env;
use std::error::Error;
use std::path::Path;

use accelerate::{Accelerator, Result};
use measures::Measures;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [part, "--bench-json", path, ref rest @ ..] = arguments[..] else {
        return Err("expected the name of a part, then `--bench-json PATH`".into());
    };
    if part == "checkpoint" {
        let ["--folder", folder, "--megabytes", megabytes] = *rest else {
            return Err("expected `--folder FOLDER --megabytes N` behind it".into());
        };
        let mut measures = Measures::default();
        checkpoint::run(Path::new(folder), megabytes.parse()?, &mut measures)?;
        return Ok(measures.write(Path::new(path), 0)?);
    }
    let run: fn(&Accelerator, &mut Measures) -> Result<()> = match part {
        "loader" => loader::run,
        "step" => step::run,
        "gather" => gather::run,
        "accumulate" => accumulate::run,
        other => return Err(format!("expected a part to measure, found `{other}`").into()),
    };
    tch::set_num_threads(1);
    let accelerator = Accelerator::builder().cpu(true).build()?;
    let mut measures = Measures::default();
    run(&accelerator, &mut measures)?;
    measures.write(Path::new(path), accelerator.process_index())?;
    Ok(accelerator.wait_for_everyone()?)
}
