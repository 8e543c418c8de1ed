//! All eight samples at once, without an accelerator.
//!
//! `cargo run --bin by_feature -- gradient_accumulation_exact --plain`

use accelerate::Result;
use accelerate::nn::Forward;
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::tch::{Reduction, Tensor};

use super::{LEARNING_RATE, X, Y, column, model, weight};
use crate::sentiment::{parameters, print};

pub(crate) fn run() -> Result<()> {
    let model = model()?;
    let mut optimizer = Sgd::new(parameters(&model), SgdConfig::new(LEARNING_RATE))?;
    print(format!("initial model weight is {:.5}", weight(&model)?));

    let (inputs, labels) = (Tensor::f_from_slice(&X)?, Tensor::f_from_slice(&Y)?);
    let outputs = model.call(column(&inputs)?)?;
    let loss = outputs.f_mse_loss(&column(&labels)?, Reduction::Mean)?;
    loss.f_backward()?;
    optimizer.step()?;

    let weight = weight(&model)?;
    print(format!(
        "w/o accumulation, the final model weight is {weight:.5}"
    ));
    Ok(())
}
