//! Two samples at a time, in four parts that all processes share: the same weight.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature gradient_accumulation_exact`

use std::num::NonZeroUsize;

use accelerate::data::{DataLoader, TensorDataset};
use accelerate::nn::Forward;
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::tch::{Reduction, Tensor};
use accelerate::{Accelerator, Error, Result};

use super::{LEARNING_RATE, X, Y, column, model, plain, weight};
use crate::sentiment::parameters;

const PARTS: usize = 4;

pub(crate) fn run() -> Result<()> {
    let accelerator = Accelerator::new()?;
    // Each process takes its share of the parts.
    let processes = accelerator.num_processes();
    let steps = NonZeroUsize::new(PARTS / processes).filter(|_| PARTS.is_multiple_of(processes));
    let steps = steps.ok_or_else(|| Error::data("there are 4 parts; use 1, 2 or 4 processes"))?;
    accelerator.set_gradient_accumulation_steps(steps);

    let model = model()?;
    let optimizer = Sgd::new(parameters(&model), SgdConfig::new(LEARNING_RATE))?;
    let samples = TensorDataset::new([Tensor::f_from_slice(&X)?, Tensor::f_from_slice(&Y)?])?;
    let batches = DataLoader::builder(samples)
        .batch_size(X.len() / PARTS)
        .build()?;
    let (model, mut optimizer, batches) = accelerator.prepare((model, optimizer, batches))?;
    accelerator.print(format!("initial model weight is {:.5}", weight(&model)?));

    for batch in &batches {
        let [inputs, labels] = batch?;
        let _step = accelerator.accumulate(&model)?;
        let outputs = model.call(column(&inputs)?)?;
        let loss = outputs.f_mse_loss(&column(&labels)?, Reduction::Mean)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
    }

    let weight = weight(&model)?;
    accelerator.print(format!(
        "w/ accumulation, the final model weight is {weight:.5}"
    ));
    accelerator.on_main_process(plain::run).unwrap_or(Ok(()))
}
