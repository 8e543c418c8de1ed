//! Convolutions, and what they have in common.

mod conv1d;
mod conv2d;

use std::fmt;

pub use self::conv1d::Conv1d;
pub use self::conv2d::Conv2d;

use super::{Factory, Init, Parameter, init};
use crate::{Error, Result};

/// What is added around the input of a convolution over `N` dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvPadding<const N: usize> {
    /// So many zeros on both sides of each dimension.
    Zeros([i64; N]),
    /// Zeros such that a stride of 1 keeps the size; of an odd number of them, one more at the end.
    Same,
}

impl<const N: usize> Default for ConvPadding<N> {
    fn default() -> Self {
        Self::Zeros([0; N])
    }
}

/// The settings of a convolution over `N` dimensions; the default is PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvOptions<const N: usize> {
    /// How far the kernel moves from one output to the next.
    pub stride: [i64; N],
    /// What is added around the input.
    pub padding: ConvPadding<N>,
    /// How far the values are apart that the kernel looks at.
    pub dilation: [i64; N],
    /// Into how many parts the channels fall that have nothing to do with each other.
    pub groups: i64,
    /// Whether there is an offset for each output channel.
    pub bias: bool,
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> Self {
        Self {
            stride: [1; N],
            padding: ConvPadding::default(),
            dilation: [1; N],
            groups: 1,
            bias: true,
        }
    }
}

/// The settings of a [`Conv1d`].
pub type Conv1dOptions = ConvOptions<1>;
/// The settings of a [`Conv2d`].
pub type Conv2dOptions = ConvOptions<2>;

impl<const N: usize> ConvOptions<N> {
    /// New parameters of a convolution: the weight is drawn first, then the bias.
    fn parameters(
        &self,
        layer: &'static str,
        [in_channels, out_channels]: [i64; 2],
        kernel_size: [i64; N],
        factory: &Factory,
    ) -> Result<(Parameter, Option<Parameter>)> {
        self.check(layer, [in_channels, out_channels], kernel_size)?;
        let mut shape = vec![out_channels, in_channels / self.groups];
        shape.extend(kernel_size);
        let weight = factory.empty(&shape)?;
        match factory.init() {
            Init::Layer if weight.numel() > 0 => init::kaiming_uniform(&weight, 5.0_f64.sqrt())?,
            Init::Normal { std } => init::normal(&weight, 0.0, std)?,
            Init::Layer | Init::Skip => {}
        }
        let bias = if self.bias {
            Some(Parameter::new(self.new_bias(&weight, factory)?)?)
        } else {
            None
        };
        Ok((Parameter::new(weight)?, bias))
    }

    /// The shape of what a kernel of this shape makes of an input.
    fn output_shape(&self, layer: &'static str, weight: &[i64], input: &[i64]) -> Result<Vec<i64>> {
        let refused = || Error::Argument {
            operation: layer,
            expected: format!("an input that a kernel of shape {weight:?} fits into"),
            found: format!("the shape {input:?}"),
        };
        let (Some(&[out, each]), Some(kernel)) =
            (weight.first_chunk::<2>(), weight.last_chunk::<N>())
        else {
            return Err(refused());
        };
        let batch = match input.len().checked_sub(N + 1) {
            Some(0) => None,
            Some(1) => input.first().copied(),
            _ => return Err(refused()),
        };
        let sizes = input.last_chunk::<N>().ok_or_else(refused)?;
        if input.iter().rev().nth(N) != Some(&(each * self.groups)) {
            return Err(refused());
        }
        let mut shape: Vec<i64> = batch.into_iter().chain([out]).collect();
        for (dim, (&size, &kernel)) in sizes.iter().zip(kernel).enumerate() {
            let output = self.output_size(dim, size, kernel).ok_or_else(refused)?;
            shape.push(output);
        }
        Ok(shape)
    }

    /// How many outputs there are along one dimension; none where the kernel does not fit.
    fn output_size(&self, dim: usize, size: i64, kernel: i64) -> Option<i64> {
        let zeros = match &self.padding {
            ConvPadding::Same => return Some(size),
            ConvPadding::Zeros(zeros) => zeros.get(dim)?,
        };
        let room = size + 2 * zeros - self.dilation.get(dim)? * (kernel - 1) - 1;
        (room >= 0).then_some(room / self.stride.get(dim)? + 1)
    }

    fn new_bias(&self, weight: &tch::Tensor, factory: &Factory) -> Result<tch::Tensor> {
        let bias = factory.empty(&[weight.size().first().copied().unwrap_or(0)])?;
        match factory.init() {
            Init::Layer => {
                let inputs = init::fan_in(weight)?;
                if inputs > 0 {
                    let bound = 1.0 / (inputs as f64).sqrt();
                    init::uniform(&bias, -bound, bound)?;
                }
            }
            Init::Normal { .. } => init::constant(&bias, 0.0)?,
            Init::Skip => {}
        }
        Ok(bias)
    }

    fn check(
        &self,
        operation: &'static str,
        channels: [i64; 2],
        kernel_size: [i64; N],
    ) -> Result<()> {
        let refused = |expected: &str, found: &dyn fmt::Debug| Error::Argument {
            operation,
            expected: expected.to_owned(),
            found: format!("{found:?}"),
        };
        if self.groups < 1 {
            return Err(refused("at least one group", &self.groups));
        }
        if channels
            .iter()
            .any(|count| *count < 0 || count % self.groups != 0)
        {
            let expected = format!("channels that {} groups divide", self.groups);
            return Err(refused(&expected, &channels));
        }
        for (what, values, least) in [
            ("a kernel of at least one value", kernel_size, 1),
            ("a stride of at least 1", self.stride, 1),
            ("a dilation of at least 1", self.dilation, 1),
        ] {
            if values.iter().any(|value| *value < least) {
                return Err(refused(what, &values));
            }
        }
        match self.padding {
            ConvPadding::Zeros(zeros) if zeros.iter().any(|count| *count < 0) => {
                Err(refused("no negative padding", &zeros))
            }
            ConvPadding::Same if self.stride != [1; N] => Err(refused(
                "a stride of 1 beside `ConvPadding::Same`",
                &self.stride,
            )),
            _ => Ok(()),
        }
    }
}
