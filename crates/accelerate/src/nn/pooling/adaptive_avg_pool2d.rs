//! Means over so many windows as the output has values.

use tch::Tensor;

use crate::Result;
use crate::nn::shape_only::{is_shape_only, shape_only};
use crate::nn::{Forward, Module, ModuleState};

/// Gives means over windows that are chosen such that the output has the size that is wanted.
///
/// # Shapes
/// `[batch, channels, height, width]` to `[batch, channels, output height, output width]`, or
/// both without the batch.
///
/// # Source
/// `torch.nn.AdaptiveAvgPool2d`.
#[derive(Debug, Clone, Module)]
pub struct AdaptiveAvgPool2d {
    #[module(skip)]
    output_size: [Option<i64>; 2],
    state: ModuleState,
}

impl AdaptiveAvgPool2d {
    /// An output of this height and width; `None` keeps the input's.
    pub fn new(output_size: [Option<i64>; 2]) -> Self {
        Self {
            output_size,
            state: ModuleState::default(),
        }
    }

    /// One mean over the whole height and width.
    pub fn global() -> Self {
        Self::new([Some(1), Some(1)])
    }
}

impl Forward for AdaptiveAvgPool2d {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let size = input.size();
        let own = |from_end: usize| size.iter().rev().nth(from_end).copied().unwrap_or(0);
        let [height, width] = self.output_size;
        let output = [height.unwrap_or(own(1)), width.unwrap_or(own(0))];
        if is_shape_only(&input)? {
            let kept = size.len().saturating_sub(2);
            let mut shape: Vec<i64> = size.iter().take(kept).copied().collect();
            shape.extend(output);
            return shape_only(&shape, &input);
        }
        Ok(input.f_adaptive_avg_pool2d(output)?)
    }
}
