//! The largest value of each window.

use tch::Tensor;

use crate::Result;
use crate::nn::{Forward, Module, ModuleState};

/// The settings of [`MaxPool2d`]; the default is PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxPool2dOptions {
    /// How far the window moves; its own size where absent.
    pub stride: Option<[i64; 2]>,
    /// How far the window may stand over each edge, at most half its size.
    pub padding: [i64; 2],
    /// How far the values are apart that the window looks at.
    pub dilation: [i64; 2],
    /// Whether a window that is not full gives a value too.
    pub ceil_mode: bool,
}

impl Default for MaxPool2dOptions {
    fn default() -> Self {
        Self {
            stride: None,
            padding: [0; 2],
            dilation: [1; 2],
            ceil_mode: false,
        }
    }
}

/// Gives the largest value of each window.
///
/// # Shapes
/// `[batch, channels, height, width]` or without the batch; the output's height and width follow
/// from the window.
///
/// # Source
/// `torch.nn.MaxPool2d`, without `return_indices`.
#[derive(Debug, Clone, Module)]
pub struct MaxPool2d {
    #[module(skip)]
    kernel_size: [i64; 2],
    #[module(skip)]
    options: MaxPool2dOptions,
    state: ModuleState,
}

impl MaxPool2d {
    /// Looks at windows of this height and width.
    pub fn new(kernel_size: [i64; 2], options: MaxPool2dOptions) -> Self {
        Self {
            kernel_size,
            options,
            state: ModuleState::default(),
        }
    }
}

impl Forward for MaxPool2d {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let MaxPool2dOptions {
            stride,
            padding,
            dilation,
            ceil_mode,
        } = self.options;
        let stride = stride.unwrap_or(self.kernel_size);
        Ok(input.f_max_pool2d(self.kernel_size, stride, padding, dilation, ceil_mode)?)
    }
}
