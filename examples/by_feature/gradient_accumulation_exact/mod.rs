//! The smallest program that shows that accumulation changes nothing: `y = 2 x`, learnt from
//! eight samples in one step, at once or in four parts.

pub(crate) mod accelerated;
pub(crate) mod plain;

use accelerate::Result;
use accelerate::nn::{Factory, Linear, init};
use accelerate::tch::Tensor;

const X: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
const Y: [f32; 8] = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0];
const LEARNING_RATE: f64 = 0.02;

/// `y = weight * x`, with a weight of 0.
fn model() -> Result<Linear> {
    let model = Linear::without_bias(1, 1, &Factory::default())?;
    init::constant(model.weight.tensor(), 0.0)?;
    Ok(model)
}

/// What the model has learnt.
fn weight(model: &Linear) -> Result<f64> {
    Ok(model.weight.tensor().f_double_value(&[0, 0])?)
}

/// Numbers as a batch: `[n, 1]`.
fn column(numbers: &Tensor) -> Result<Tensor> {
    Ok(numbers.f_view([-1, 1])?)
}
