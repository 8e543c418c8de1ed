//! How fast models train and write, and how soon an encoder has its first vector.
//!
//! ```text
//! cargo run --release --example model_pace -- train --bench-json PATH
//! ```
//!
//! `train`, `generate` and `start` each write what they measured to `PATH.rank0.json`. Sizes are in
//! `tests/parity/bench_models.json`; the Python side, `tests/parity/bench_models.py`, reads the same.
//! `cargo xtask bench-peers --models` runs both.
//!
//! On several ranks, with `--size small` or `--size large` behind the path, `ddp` trains one model
//! whole on each, and `shard_grad_op` and `full_shard` train it in shards, which the launcher's flags
//! have to ask for. Sizes are in `tests/parity/bench_sharded.json`; the Python side is
//! `tests/parity/bench_sharded.py`, and `cargo xtask bench-peers --sharded` runs both.
#![forbid(unsafe_code)]

mod generate;
#[path = "../../../accelerate/examples/training_core/measures.rs"]
#[expect(dead_code, reason = "shared with a program that measures more")]
mod measures;
mod shapes;
mod sharded;
mod start;
mod train;

use std::env;
use std::error::Error;
use std::path::Path;

use measures::Measures;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [part, "--bench-json", path, ref rest @ ..] = arguments[..] else {
        return Err("expected the name of a part, then `--bench-json PATH`".into());
    };
    tch::set_num_threads(1);
    if let ["--size", size] = *rest {
        return sharded::run(part, size, Path::new(path));
    }
    if let Some(other) = rest.first() {
        return Err(format!("expected `--size SIZE` behind the path, found `{other}`").into());
    }
    let mut measures = Measures::default();
    match part {
        "train" => train::run(&mut measures)?,
        "generate" => generate::run(&mut measures)?,
        "start" => start::run(&mut measures)?,
        other => return Err(format!("expected a part to measure, found `{other}`").into()),
    }
    Ok(measures.write(Path::new(path), 0)?)
}
