//! The blocks of a residual network, with torchvision's names.

use accelerate::Result;
use accelerate::nn::{
    Activation, ActivationFunction, BatchNorm2d, BatchNormOptions, Conv2d, Conv2dOptions,
    ConvPadding, Factory, Forward, Module, ModuleState,
};
use tch::Tensor;

use super::{ResNetArchitecture, ResidualKind};

/// A square convolution without offset that keeps the size, or divides it by the stride.
pub(super) fn convolution(
    [inputs, outputs]: [i64; 2],
    kernel: i64,
    stride: i64,
    groups: i64,
    factory: &Factory,
) -> Result<Conv2d> {
    let options = Conv2dOptions {
        stride: [stride; 2],
        padding: ConvPadding::Zeros([kernel / 2; 2]),
        groups,
        bias: false,
        ..Conv2dOptions::default()
    };
    Conv2d::new(inputs, outputs, [kernel; 2], options, factory)
}

/// A batch norm with PyTorch's settings.
pub(super) fn norm(channels: i64, factory: &Factory) -> Result<BatchNorm2d> {
    BatchNorm2d::new(channels, BatchNormOptions::default(), factory)
}

pub(super) fn relu() -> Activation {
    Activation::new(ActivationFunction::Relu)
}

/// The channels and the stride of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockShape {
    pub(super) inputs: i64,
    pub(super) planes: i64,
    pub(super) stride: i64,
}

/// Brings a block's input to the shape of its output.
///
/// # Shapes
/// `[batch, inputs, height, width]` to `[batch, outputs, height / stride, width / stride]`.
#[derive(Debug, Clone, Module)]
#[module(class = "Sequential")]
pub struct Downsample {
    #[module(name = "0")]
    convolution: Conv2d,
    #[module(name = "1")]
    norm: BatchNorm2d,
    state: ModuleState,
}

impl Downsample {
    /// None where the input has the shape of the output.
    fn between(shape: BlockShape, outputs: i64, factory: &Factory) -> Result<Option<Self>> {
        if shape.stride == 1 && shape.inputs == outputs {
            return Ok(None);
        }
        Ok(Some(Self {
            convolution: convolution([shape.inputs, outputs], 1, shape.stride, 1, factory)?,
            norm: norm(outputs, factory)?,
            state: ModuleState::default(),
        }))
    }
}

impl Forward for Downsample {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.norm.call(self.convolution.call(input)?)
    }
}

/// Two 3x3 convolutions, added to their input.
///
/// # Shapes
/// `[batch, inputs, height, width]` to `[batch, planes, height / stride, width / stride]`.
#[derive(Debug, Clone, Module)]
pub struct BasicBlock {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    relu: Activation,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<Downsample>,
    state: ModuleState,
}

impl BasicBlock {
    fn new(shape: BlockShape, factory: &Factory) -> Result<Self> {
        let BlockShape {
            inputs,
            planes,
            stride,
        } = shape;
        let downsample = Downsample::between(shape, planes, factory)?;
        Ok(Self {
            conv1: convolution([inputs, planes], 3, stride, 1, factory)?,
            bn1: norm(planes, factory)?,
            relu: relu(),
            conv2: convolution([planes, planes], 3, 1, 1, factory)?,
            bn2: norm(planes, factory)?,
            downsample,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BasicBlock {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.bn1.call(self.conv1.call(&input)?)?;
        let hidden = self.bn2.call(self.conv2.call(self.relu.call(hidden)?)?)?;
        let kept = shortcut(self.downsample.as_ref(), input)?;
        self.relu.call(hidden.f_add(&kept)?)
    }
}

/// A 1x1, a 3x3 and a 1x1 convolution, added to their input. The 3x3 convolution has the stride.
///
/// # Shapes
/// `[batch, inputs, height, width]` to `[batch, 4 · planes, height / stride, width / stride]`.
#[derive(Debug, Clone, Module)]
pub struct Bottleneck {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    conv3: Conv2d,
    bn3: BatchNorm2d,
    relu: Activation,
    downsample: Option<Downsample>,
    state: ModuleState,
}

impl Bottleneck {
    fn new(network: &ResNetArchitecture, shape: BlockShape, factory: &Factory) -> Result<Self> {
        let inner = network.inner_channels(shape.planes);
        let outputs = shape.planes * network.block.expansion();
        let downsample = Downsample::between(shape, outputs, factory)?;
        Ok(Self {
            conv1: convolution([shape.inputs, inner], 1, 1, 1, factory)?,
            bn1: norm(inner, factory)?,
            conv2: convolution([inner, inner], 3, shape.stride, network.groups, factory)?,
            bn2: norm(inner, factory)?,
            conv3: convolution([inner, outputs], 1, 1, 1, factory)?,
            bn3: norm(outputs, factory)?,
            relu: relu(),
            downsample,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Bottleneck {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.bn1.call(self.conv1.call(&input)?)?;
        let hidden = self.bn2.call(self.conv2.call(self.relu.call(hidden)?)?)?;
        let hidden = self.bn3.call(self.conv3.call(self.relu.call(hidden)?)?)?;
        let kept = shortcut(self.downsample.as_ref(), input)?;
        self.relu.call(hidden.f_add(&kept)?)
    }
}

fn shortcut(downsample: Option<&Downsample>, input: Tensor) -> Result<Tensor> {
    match downsample {
        Some(downsample) => downsample.call(input),
        None => Ok(input),
    }
}

/// A block of either kind.
///
/// # Shapes
/// As [`BasicBlock`] or [`Bottleneck`].
#[derive(Debug, Clone, Module)]
pub enum ResidualBlock {
    /// Two 3x3 convolutions.
    Basic(Box<BasicBlock>),
    /// A 1x1, a 3x3 and a 1x1 convolution.
    Bottleneck(Box<Bottleneck>),
}

impl ResidualBlock {
    pub(super) fn new(
        network: &ResNetArchitecture,
        shape: BlockShape,
        factory: &Factory,
    ) -> Result<Self> {
        Ok(match network.block {
            ResidualKind::Basic => Self::Basic(Box::new(BasicBlock::new(shape, factory)?)),
            ResidualKind::Bottleneck => {
                Self::Bottleneck(Box::new(Bottleneck::new(network, shape, factory)?))
            }
        })
    }

    /// The norm whose scale decides how much the block adds.
    pub(super) fn last_norm(&self) -> &BatchNorm2d {
        match self {
            Self::Basic(block) => &block.bn2,
            Self::Bottleneck(block) => &block.bn3,
        }
    }
}

impl Forward for ResidualBlock {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        match self {
            Self::Basic(block) => block.forward(input),
            Self::Bottleneck(block) => block.forward(input),
        }
    }
}
