//! How long a step of generation takes, greedy and with beams, for a GPT-2 of 6 layers.
//!
//! `cargo run --release --example generation_pace`; the Python side is
//! `tests/parity/bench_generation.py`. Both print milliseconds for each new token.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;

use accelerate::nn::{Factory, Module};
use accelerate_models::generation::{GenerateOptions, GenerationConfig, Prompt, generate};
use accelerate_models::gpt2::{GPT2Config, GPT2LMHeadModel};
use accelerate_models::{PretrainedModel, Result};
use tch::{Device, Kind, Tensor};

const ROWS: i64 = 4;
const PROMPT: i64 = 64;
const NEW: i64 = 128;

fn main() -> Result<()> {
    tch::set_num_threads(1);
    let mut config = GPT2Config::default();
    config.vocab_size = 8000;
    config.n_layer = 6;
    config.n_embd = 384;
    config.n_head = 6;
    config.n_positions = 512;
    tch::manual_seed(0);
    let model = GPT2LMHeadModel::new(&config, &Factory::default())?;
    model.train(false);
    let prompt = Prompt::new(&Tensor::randint(
        config.vocab_size,
        [ROWS, PROMPT],
        (Kind::Int64, Device::Cpu),
    ));
    for beams in [1, 4] {
        let mut settings = GenerationConfig::default();
        settings.num_beams = beams;
        for new in [8, NEW] {
            settings.max_new_tokens = Some(new);
            let start = Instant::now();
            generate(&model, &prompt, &settings, GenerateOptions::default())?;
            // The first run only warms up.
            if new == NEW {
                let time = start.elapsed().as_secs_f64() * 1e3 / NEW as f64;
                println!("{beams} beams {time:>8.2}");
            }
        }
    }
    Ok(())
}
