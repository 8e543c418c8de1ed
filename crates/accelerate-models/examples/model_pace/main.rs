//! How fast models train and write, and how soon an encoder has its first vector.
//!
//! ```text
//! cargo run --release --example model_pace -- train --bench-json PATH
//! ```
//!
//! `train`, `generate` and `start` each write what they measured to `PATH.rank0.json`. Sizes are in
//! `tests/parity/bench_models.json`; the Python side, `tests/parity/bench_models.py`, reads the same.
//! `cargo xtask bench-peers --models` runs both.
#![forbid(unsafe_code)]

mod generate;
#[path = "../../../accelerate/examples/training_core/measures.rs"]
#[expect(dead_code, reason = "shared with a program that measures more")]
mod measures;
mod shapes;
mod start;
mod train;

use std::env;
use std::error::Error;
use std::path::Path;

use measures::Measures;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [part, "--bench-json", path] = arguments[..] else {
        return Err("expected `train`, `generate` or `start`, then `--bench-json PATH`".into());
    };
    tch::set_num_threads(1);
    let mut measures = Measures::default();
    match part {
        "train" => train::run(&mut measures)?,
        "generate" => generate::run(&mut measures)?,
        "start" => start::run(&mut measures)?,
        other => return Err(format!("expected a part to measure, found `{other}`").into()),
    }
    Ok(measures.write(Path::new(path), 0)?)
}
