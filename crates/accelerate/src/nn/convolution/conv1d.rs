//! The convolution over one dimension.

use tch::Tensor;

use super::{ConvOptions, ConvPadding};
use crate::Result;
use crate::nn::shape_only::{is_shape_only, shape_only};
use crate::nn::{Factory, Forward, Module, ModuleState, Parameter};

/// Moves a kernel over one dimension: each output is the weighted sum of the values below the kernel.
///
/// Initialised by Kaiming's uniform distribution with `a = √5`, which draws the weight and then
/// the bias from `± 1 / √(in / groups · length of the kernel)`.
///
/// # Shapes
/// - `weight`: `[out, in / groups, kernel]`, `bias`: `[out]`
/// - input: `[batch, in, length]` or `[in, length]`; output: likewise, with `out` channels
///
/// # Source
/// `torch.nn.Conv1d`. Differs: padding is made of zeros only.
#[derive(Debug, Clone, Module)]
pub struct Conv1d {
    /// The kernels.
    pub weight: Parameter,
    /// The offset of each output channel, where there is one.
    pub bias: Option<Parameter>,
    #[module(skip)]
    options: ConvOptions<1>,
    state: ModuleState,
}

impl Conv1d {
    /// A convolution with new weights.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the groups do not divide the channels, or
    /// for a kernel, stride, dilation or padding that cannot be; else if memory is short.
    pub fn new(
        in_channels: i64,
        out_channels: i64,
        kernel_size: [i64; 1],
        options: ConvOptions<1>,
        factory: &Factory,
    ) -> Result<Self> {
        let channels = [in_channels, out_channels];
        let (weight, bias) = options.parameters("Conv1d::new", channels, kernel_size, factory)?;
        Ok(Self {
            weight,
            bias,
            options,
            state: ModuleState::default(),
        })
    }

    /// The settings.
    pub fn options(&self) -> &ConvOptions<1> {
        &self.options
    }
}

impl Forward for Conv1d {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let ConvOptions {
            stride,
            padding,
            dilation,
            groups,
            ..
        } = self.options;
        let weight = self.weight.dense()?;
        let bias = self.bias.as_ref().map(Parameter::dense).transpose()?;
        if is_shape_only(&input)? {
            let shape = self
                .options
                .output_shape("Conv1d", &weight.size(), &input.size())?;
            return shape_only(&shape, &input);
        }
        Ok(match padding {
            ConvPadding::Zeros(zeros) => {
                input.f_conv1d(&weight, bias.as_ref(), stride, zeros, dilation, groups)?
            }
            ConvPadding::Same => {
                input.f_conv1d_padding(&weight, bias.as_ref(), stride, "same", dilation, groups)?
            }
        })
    }
}
