//! What a batch that does not complete gradients costs, and that it sends nothing.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::{Accelerator, Result};
use tch::{Device, Kind, Tensor};

use super::measures::{Measures, median, written};

const WIDTH: i64 = 256;
const BATCH: i64 = 32;
const LAYERS: usize = 4;
const ACCUMULATED: usize = 4;
const BATCHES: usize = 400;
const WARM_UP: usize = 5 * ACCUMULATED;

/// Layers with a quarter of a million weights.
#[derive(Module)]
struct Layers {
    layers: Vec<Linear>,
    state: ModuleState,
}

impl Forward for Layers {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, mut input: Tensor) -> Result<Tensor> {
        for layer in &self.layers {
            input = layer.call(input)?.f_tanh()?;
        }
        Ok(input)
    }
}

/// Times batches, and counts what this process writes to its connections meanwhile.
pub(crate) fn run(accelerator: &Accelerator, measures: &mut Measures) -> Result<()> {
    let factory = Factory::default();
    let layers = (0..LAYERS).map(|_| Linear::new(WIDTH, WIDTH, &factory));
    let model = Layers {
        layers: layers.collect::<Result<_>>()?,
        state: ModuleState::default(),
    };
    let weights: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|one| one.tensor().shallow_clone())
        .collect();
    let optimizer = Sgd::new(weights, SgdConfig::new(0.01))?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    if let Some(steps) = NonZeroUsize::new(ACCUMULATED) {
        accelerator.set_gradient_accumulation_steps(steps);
    }
    let input = Tensor::f_full([BATCH, WIDTH], 0.5, (Kind::Float, Device::Cpu))?;
    let (mut local, mut exchanged) = (Batches::default(), Batches::default());
    for batch in 0..WARM_UP + BATCHES {
        let sent = written()?;
        let start = Instant::now();
        let scope = accelerator.accumulate(&model)?;
        let loss = model.call(&input)?.f_square()?.f_mean(Kind::Float)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        drop(scope);
        let time = start.elapsed();
        let kind = match accelerator.sync_gradients() {
            true => &mut exchanged,
            false => &mut local,
        };
        if batch >= WARM_UP {
            kind.times.push(time);
            kind.bytes += written()? - sent;
        }
    }
    measures.check("local_batches", local.times.len() as f64);
    measures.check("exchanged_batches", exchanged.times.len() as f64);
    local.note("local", measures);
    exchanged.note("exchanged", measures);
    Ok(())
}

#[derive(Default)]
struct Batches {
    times: Vec<Duration>,
    bytes: u64,
}

impl Batches {
    fn note(self, name: &str, measures: &mut Measures) {
        measures.bytes(
            format!("{name}_bytes"),
            self.bytes / self.times.len().max(1) as u64,
        );
        measures.time(format!("{name}_s"), median(self.times));
    }
}
