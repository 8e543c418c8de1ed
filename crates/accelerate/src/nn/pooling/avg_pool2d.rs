//! The mean of each window.

use std::num::NonZeroI64;

use tch::Tensor;

use crate::Result;
use crate::nn::{Forward, Module, ModuleState};

/// The settings of [`AvgPool2d`]; the default is PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvgPool2dOptions {
    /// How far the window moves; its own size where absent.
    pub stride: Option<[i64; 2]>,
    /// How many zeros there are at each edge, at most half the window's size.
    pub padding: [i64; 2],
    /// Whether a window that is not full gives a value too.
    pub ceil_mode: bool,
    /// Whether the zeros of the padding count as values.
    pub count_include_pad: bool,
    /// What sums are divided by; the number of values where absent.
    pub divisor_override: Option<NonZeroI64>,
}

impl Default for AvgPool2dOptions {
    fn default() -> Self {
        Self {
            stride: None,
            padding: [0; 2],
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }
}

/// Gives the mean of each window.
///
/// # Shapes
/// `[batch, channels, height, width]` or without the batch; the output's height and width follow
/// from the window.
///
/// # Source
/// `torch.nn.AvgPool2d`.
#[derive(Debug, Clone, Module)]
pub struct AvgPool2d {
    #[module(skip)]
    kernel_size: [i64; 2],
    #[module(skip)]
    options: AvgPool2dOptions,
    state: ModuleState,
}

impl AvgPool2d {
    /// Looks at windows of this height and width.
    pub fn new(kernel_size: [i64; 2], options: AvgPool2dOptions) -> Self {
        Self {
            kernel_size,
            options,
            state: ModuleState::default(),
        }
    }
}

impl Forward for AvgPool2d {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let AvgPool2dOptions {
            stride,
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override,
        } = self.options;
        Ok(input.f_avg_pool2d(
            self.kernel_size,
            stride.unwrap_or(self.kernel_size),
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override.map(NonZeroI64::get),
        )?)
    }
}
