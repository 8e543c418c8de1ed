//! The stages of a residual network, with transformers' names.

use accelerate::nn::{
    Activation, BatchNorm2d, Conv2d, Factory, Forward, Identity, MaxPool2d, Member, MemberMut,
    Module, ModuleState, SequentialOf,
};
use accelerate::{Error, Result};
use tch::Tensor;

use super::block::{convolution, norm, relu};
use super::network::halving_pool;
use super::{ResNetConfig, ResNetLayerType};

/// The function behind a convolution, or none.
#[derive(Debug, Clone, Module)]
enum Behind {
    Function(Activation),
    Nothing(Identity),
}

/// A convolution, its norm, and a function.
///
/// # Shapes
/// `[batch, inputs, height, width]` to `[batch, outputs, height / stride, width / stride]`.
#[derive(Debug, Clone, Module)]
pub struct ResNetConvLayer {
    convolution: Conv2d,
    normalization: BatchNorm2d,
    activation: Behind,
    state: ModuleState,
}

impl ResNetConvLayer {
    fn new(
        channels: [i64; 2],
        kernel: i64,
        stride: i64,
        activation: Option<Activation>,
        factory: &Factory,
    ) -> Result<Self> {
        let [_, outputs] = channels;
        Ok(Self {
            convolution: convolution(channels, kernel, stride, 1, factory)?,
            normalization: norm(outputs, factory)?,
            activation: match activation {
                Some(function) => Behind::Function(function),
                None => Behind::Nothing(Identity::new()),
            },
            state: ModuleState::default(),
        })
    }
}

impl Forward for ResNetConvLayer {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.normalization.call(self.convolution.call(input)?)?;
        match &self.activation {
            Behind::Function(function) => function.call(hidden),
            Behind::Nothing(identity) => identity.call(hidden),
        }
    }
}

/// The first convolution and a pool.
///
/// # Shapes
/// `[batch, num_channels, height, width]` to `[batch, embedding_size, height / 4, width / 4]`.
#[derive(Debug, Clone, Module)]
pub struct ResNetEmbeddings {
    embedder: ResNetConvLayer,
    pooler: MaxPool2d,
    #[module(skip)]
    num_channels: i64,
    state: ModuleState,
}

impl ResNetEmbeddings {
    pub(super) fn new(config: &ResNetConfig, factory: &Factory) -> Result<Self> {
        let channels = [config.num_channels, config.embedding_size];
        let function = Activation::new(config.hidden_act.into());
        Ok(Self {
            embedder: ResNetConvLayer::new(channels, 7, 2, Some(function), factory)?,
            pooler: halving_pool(),
            num_channels: config.num_channels,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ResNetEmbeddings {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, images: Tensor) -> Result<Tensor> {
        if images.size().get(1) != Some(&self.num_channels) {
            return Err(Error::Argument {
                operation: "ResNetEmbeddings",
                expected: format!(
                    "images of shape [batch, {}, height, width]",
                    self.num_channels
                ),
                found: format!("{:?}", images.size()),
            });
        }
        self.pooler.call(self.embedder.call(images)?)
    }
}

/// Brings a layer's input to the shape of its output.
///
/// # Shapes
/// As [`ResNetConvLayer`].
#[derive(Debug, Clone, Module)]
pub struct ResNetShortCut {
    convolution: Conv2d,
    normalization: BatchNorm2d,
    state: ModuleState,
}

impl Forward for ResNetShortCut {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.normalization.call(self.convolution.call(input)?)
    }
}

/// The way around the convolutions.
#[derive(Debug, Clone, Module)]
enum Around {
    ShortCut(Box<ResNetShortCut>),
    Unchanged(Identity),
}

impl Around {
    fn new(channels: [i64; 2], stride: i64, factory: &Factory) -> Result<Self> {
        let [inputs, outputs] = channels;
        if inputs == outputs && stride == 1 {
            return Ok(Self::Unchanged(Identity::new()));
        }
        Ok(Self::ShortCut(Box::new(ResNetShortCut {
            convolution: convolution(channels, 1, stride, 1, factory)?,
            normalization: norm(outputs, factory)?,
            state: ModuleState::default(),
        })))
    }
}

/// Some convolutions, added to their input: `ResNetBasicLayer` or `ResNetBottleNeckLayer`.
///
/// # Shapes
/// `[batch, inputs, height, width]` to `[batch, outputs, height / stride, width / stride]`.
#[derive(Debug, Clone)]
pub struct ResNetLayer {
    shortcut: Around,
    layer: SequentialOf<ResNetConvLayer>,
    activation: Activation,
    kind: ResNetLayerType,
    state: ModuleState,
}

impl ResNetLayer {
    fn new(
        config: &ResNetConfig,
        channels: [i64; 2],
        stride: i64,
        factory: &Factory,
    ) -> Result<Self> {
        let function = Activation::new(config.hidden_act.into());
        // The functions inside are the default ones, whatever the configuration says.
        let convolution = |channels, kernel, stride, function| {
            ResNetConvLayer::new(channels, kernel, stride, function, factory)
        };
        let shortcut = Around::new(channels, stride, factory)?;
        let [inputs, outputs] = channels;
        let layer = match config.layer_type {
            ResNetLayerType::Basic => vec![
                convolution([inputs, outputs], 3, stride, Some(relu()))?,
                convolution([outputs, outputs], 3, 1, None)?,
            ],
            ResNetLayerType::Bottleneck => {
                let narrow = outputs / 4;
                let strides = match config.downsample_in_bottleneck {
                    true => [stride, 1],
                    false => [1, stride],
                };
                vec![
                    convolution([inputs, narrow], 1, strides[0], Some(relu()))?,
                    convolution([narrow, narrow], 3, strides[1], Some(relu()))?,
                    convolution([narrow, outputs], 1, 1, None)?,
                ]
            }
        };
        Ok(Self {
            shortcut,
            layer: SequentialOf::new(layer),
            activation: function,
            kind: config.layer_type,
            state: ModuleState::default(),
        })
    }
}

impl Module for ResNetLayer {
    fn class_name(&self) -> &'static str {
        match self.kind {
            ResNetLayerType::Basic => "ResNetBasicLayer",
            ResNetLayerType::Bottleneck => "ResNetBottleNeckLayer",
        }
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit("shortcut", Member::Module(&self.shortcut));
        visit("layer", Member::Module(&self.layer));
        visit("activation", Member::Module(&self.activation));
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit("shortcut", MemberMut::Module(&mut self.shortcut));
        visit("layer", MemberMut::Module(&mut self.layer));
        visit("activation", MemberMut::Module(&mut self.activation));
    }
}

impl Forward for ResNetLayer {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.layer.call(&input)?;
        let kept = match &self.shortcut {
            Around::ShortCut(shortcut) => shortcut.call(input)?,
            Around::Unchanged(identity) => identity.call(input)?,
        };
        self.activation.call(hidden.f_add(&kept)?)
    }
}

/// Layers of one size.
///
/// # Shapes
/// As the first of its layers.
#[derive(Debug, Clone, Module)]
pub struct ResNetStage {
    layers: SequentialOf<ResNetLayer>,
    state: ModuleState,
}

impl ResNetStage {
    fn new(
        config: &ResNetConfig,
        [inputs, outputs]: [i64; 2],
        stride: i64,
        depth: usize,
        factory: &Factory,
    ) -> Result<Self> {
        let layers = (0..depth).map(|number| match number {
            0 => ResNetLayer::new(config, [inputs, outputs], stride, factory),
            _ => ResNetLayer::new(config, [outputs, outputs], 1, factory),
        });
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ResNetStage {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.layers
            .layers()
            .iter()
            .try_fold(input, |hidden, layer| layer.call(hidden))
    }
}

/// All stages, one after the other.
///
/// # Shapes
/// `[batch, embedding_size, height, width]`; each stage but the first halves height and width.
#[derive(Debug, Clone, Module)]
pub struct ResNetEncoder {
    stages: Vec<ResNetStage>,
    state: ModuleState,
}

impl ResNetEncoder {
    pub(super) fn new(config: &ResNetConfig, factory: &Factory) -> Result<Self> {
        let mut inputs = config.embedding_size;
        let sizes = config.hidden_sizes.iter().zip(&config.depths);
        let stages = sizes.enumerate().map(|(number, (&outputs, &depth))| {
            let halves = number > 0 || config.downsample_in_first_stage;
            let stride = if halves { 2 } else { 1 };
            let channels = [std::mem::replace(&mut inputs, outputs), outputs];
            ResNetStage::new(config, channels, stride, depth, factory)
        });
        Ok(Self {
            stages: stages.collect::<Result<_>>()?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ResNetEncoder {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.stages
            .iter()
            .try_fold(input, |hidden, stage| stage.call(hidden))
    }
}
