//! The linear layer of GPT-2.

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Init, Module, ModuleState, Parameter, init};
use tch::Tensor;

/// The standard deviation of the first values.
const STD: f64 = 0.02;

/// A linear map whose weight lies the other way round than that of a linear layer:
/// `y = x · weight + bias`.
///
/// # Shapes
/// - `weight`: `[in, out]`, `bias`: `[out]`
/// - input: `[.., in]`, output: `[.., out]`
///
/// # Source
/// `Conv1D` of `transformers`, named after the convolution of width 1 that the first GPT was
/// written with.
#[derive(Debug, Clone, Module)]
pub struct Conv1D {
    /// The map.
    pub weight: Parameter,
    /// The offset.
    pub bias: Parameter,
    state: ModuleState,
}

impl Conv1D {
    /// A layer from `inputs` to `outputs` values; the weight is drawn from a normal distribution.
    ///
    /// # Errors
    /// If a size is negative or memory is short.
    pub fn new(inputs: i64, outputs: i64, factory: &Factory) -> Result<Self> {
        let (weight, bias) = (
            factory.empty(&[inputs, outputs])?,
            factory.empty(&[outputs])?,
        );
        let std = match factory.init() {
            Init::Normal { std } => Some(std),
            Init::Skip => None,
            _ => Some(STD),
        };
        if let Some(std) = std {
            init::normal(&weight, 0.0, std)?;
            init::constant(&bias, 0.0)?;
        }
        Ok(Self {
            weight: Parameter::new(weight)?,
            bias: Parameter::new(bias)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Conv1D {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let mut shape = input.size();
        let width = shape.pop().unwrap_or(0);
        let (weight, bias) = (self.weight.dense()?, self.bias.dense()?);
        let output = bias.f_addmm(&input.f_reshape([-1, width])?, &weight)?;
        shape.push(output.size2()?.1);
        Ok(output.f_view(shape.as_slice())?)
    }
}
