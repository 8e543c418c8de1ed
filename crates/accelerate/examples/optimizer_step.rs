//! How long an optimizer step takes over 1,000 small tensors, where the work is all overhead.
//!
//! `cargo run --release --example optimizer_step`; the Python side is
//! `tests/parity/bench_optimizers.py`. Both print the median of 50 steps in microseconds.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::{Duration, Instant};

use accelerate::Result;
use accelerate::optim::{
    Adafactor, AdafactorConfig, Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, Lamb,
    LambConfig, Optimizer, RmsProp, RmsPropConfig, Scheduler, Sgd, SgdConfig,
    cosine_schedule_with_warmup,
};
use tch::{Device, Kind, Tensor};

const TENSORS: usize = 1_000;
const STEPS: usize = 50;

fn median(mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    for _ in 0..5 {
        call()?;
    }
    let mut times = Vec::new();
    for _ in 0..STEPS {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[STEPS / 2])
}

fn main() -> Result<()> {
    tch::set_num_threads(1);
    let parameters: Vec<Tensor> = (0..TENSORS)
        .map(|_| Tensor::ones([16], (Kind::Float, Device::Cpu)).set_requires_grad(true))
        .collect();
    let losses: Vec<Tensor> = parameters.iter().map(|p| p.sum(Kind::Float)).collect();
    Tensor::stack(&losses, 0).sum(Kind::Float).backward();
    let own = || {
        parameters
            .iter()
            .map(Tensor::shallow_clone)
            .collect::<Vec<_>>()
    };
    let momentum = SgdConfig {
        momentum: 0.9,
        ..SgdConfig::new(1e-3)
    };
    let optimizers: Vec<Box<dyn Optimizer>> = vec![
        Box::new(Sgd::new(own(), momentum)?),
        Box::new(Adam::new(own(), AdamConfig::default())?),
        Box::new(AdamW::new(own(), AdamWConfig::default())?),
        Box::new(Adagrad::new(own(), AdagradConfig::default())?),
        Box::new(RmsProp::new(own(), RmsPropConfig::default())?),
        Box::new(Adafactor::new(own(), AdafactorConfig::default())?),
        Box::new(Lamb::new(own(), LambConfig::default())?),
    ];
    for mut optimizer in optimizers {
        let time = median(|| optimizer.step())?;
        println!("{:<10} {:>8.0}", optimizer.name(), time.as_secs_f64() * 1e6);
    }
    let optimizer = Sgd::new(own(), momentum)?;
    let mut schedule = cosine_schedule_with_warmup(&optimizer, 10, 10_000, 0.5);
    let time = median(|| schedule.step())?;
    println!("{:<10} {:>8.2}", "cosine", time.as_secs_f64() * 1e6);
    Ok(())
}
