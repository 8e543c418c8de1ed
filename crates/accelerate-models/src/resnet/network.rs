//! The residual network with torchvision's names.

use std::path::Path;

use accelerate::Result;
use accelerate::checkpoint::{LoadOptions, LoadReport, Weights, load_weights};
use accelerate::nn::{
    Activation, AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Factory, Flatten, Forward, Init, Linear,
    MaxPool2d, MaxPool2dOptions, Module, ModuleState, SequentialOf, init,
};
use tch::Tensor;

use super::ResNetArchitecture;
use super::block::{BlockShape, ResidualBlock, convolution, norm, relu};

/// The last part of the name of the counter that the oldest checkpoints lack.
const COUNTER: &str = "num_batches_tracked";
/// The classifier, whose size depends on the classes.
const HEAD: &str = "fc";

/// A residual network.
///
/// ```
/// use accelerate::nn::{Factory, Forward, Module};
/// use accelerate::tch::{Device, Kind, Tensor};
/// use accelerate_models::resnet::{ResNet, ResNetArchitecture};
///
/// let network = ResNetArchitecture::resnet18().with_num_classes(10).with_planes(8);
/// let model = ResNet::new(&network, &Factory::default())?;
/// let images = Tensor::f_zeros([2, 3, 32, 32], (Kind::Float, Device::Cpu)).map_err(accelerate::Error::from)?;
/// assert_eq!(model.call(&images)?.size(), [2, 10]);
/// # Ok::<(), accelerate_models::Error>(())
/// ```
///
/// # Shapes
/// - input: `[batch, in_channels, height, width]`, best with multiples of 32
/// - output: the score of each class, `[batch, num_classes]`, or without classes
///   `[batch, num_features]`
///
/// # Source
/// `torchvision.models.ResNet`. Published weights of timm have the same names and shapes.
#[derive(Debug, Clone, Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    relu: Activation,
    maxpool: MaxPool2d,
    layer1: SequentialOf<ResidualBlock>,
    layer2: SequentialOf<ResidualBlock>,
    layer3: SequentialOf<ResidualBlock>,
    layer4: SequentialOf<ResidualBlock>,
    avgpool: AdaptiveAvgPool2d,
    fc: Option<Linear>,
    #[module(skip)]
    architecture: ResNetArchitecture,
    state: ModuleState,
}

impl ResNet {
    /// A network with new weights, in training mode.
    ///
    /// Draws the same numbers as torchvision for the same seed.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for an architecture that cannot be, else if memory
    /// is short.
    pub fn new(architecture: &ResNetArchitecture, factory: &Factory) -> crate::Result<Self> {
        architecture.check()?;
        let network = Self::build(architecture, factory)?;
        if factory.init() == Init::Layer {
            network.draw_convolutions()?;
            if architecture.zero_init_residual {
                network.silence_blocks()?;
            }
        }
        Ok(network)
    }

    /// A network with the weights of a file or folder, in evaluation mode.
    ///
    /// For another number of classes than the weights have, the classifier is new, and a warning
    /// says so.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for an architecture that cannot be,
    /// [`accelerate::Error::Formats`] for missing or damaged weights, and
    /// [`accelerate::Error::WeightsDoNotFit`] naming everything that does not fit.
    ///
    /// # Source
    /// `timm.create_model` with `pretrained=True`, for the change of classes.
    pub fn with_weights_of(
        path: impl AsRef<Path>,
        architecture: &ResNetArchitecture,
        factory: &Factory,
    ) -> crate::Result<Self> {
        architecture.check()?;
        let network = Self::build(architecture, &factory.with_init(Init::Skip))?;
        let weights = Weights::open(path).map_err(accelerate::Error::from)?;
        let report = network.read_weights(&weights)?;
        if let Some(fc) = &network.fc
            && !report.newly_initialized.is_empty()
        {
            let new = Linear::new(
                architecture.num_features(),
                architecture.num_classes,
                factory,
            )?;
            copy(&new, fc)?;
            tracing::warn!(
                path = %weights.path().display(),
                classes = architecture.num_classes,
                "the weights are for other classes: the classifier is new and needs training"
            );
        }
        network.train(false);
        Ok(network)
    }

    /// Copies weights into the network; what of the classifier is not in them is reported as new.
    fn read_weights(&self, weights: &Weights) -> Result<LoadReport> {
        let own = self.fc.as_ref().map(|fc| fc.weight.shape());
        let stored = weights
            .tensors()
            .find(|tensor| tensor.name() == "fc.weight")
            .map(|tensor| tensor.shape().iter().map(|&size| size as i64).collect());
        let same_classes = own.is_none() && stored.is_none() || own == stored;
        let rename = |name: &str| {
            let head = name == "fc.weight" || name == "fc.bias";
            (same_classes || !head).then(|| name.to_owned())
        };
        let mut options = LoadOptions::strict().with_rename(&rename);
        if !same_classes {
            options = options.with_optional(HEAD);
        }
        let counters = self.named_buffers().into_iter().map(|(name, _)| name);
        for counter in counters.filter(|name| name.ends_with(COUNTER)) {
            options = options.with_optional(counter);
        }
        let mut report = load_weights(self, weights, &options)?;
        // A counter that is not in the file begins at zero, as it does in PyTorch.
        report
            .newly_initialized
            .retain(|name| !name.ends_with(COUNTER));
        Ok(report)
    }

    /// The shape of the network.
    pub fn architecture(&self) -> &ResNetArchitecture {
        &self.architecture
    }

    fn build(architecture: &ResNetArchitecture, factory: &Factory) -> Result<Self> {
        let planes = architecture.planes;
        let mut inputs = planes;
        let mut stage = |depth: usize, planes: i64, stride: i64| {
            let blocks = (0..depth).map(|number| {
                let shape = BlockShape {
                    inputs,
                    planes,
                    stride: if number == 0 { stride } else { 1 },
                };
                inputs = planes * architecture.block.expansion();
                ResidualBlock::new(architecture, shape, factory)
            });
            blocks.collect::<Result<SequentialOf<_>>>()
        };
        let [first, second, third, fourth] = architecture.depths;
        let classes = architecture.num_classes;
        let fc = || Linear::new(architecture.num_features(), classes, factory);
        Ok(Self {
            conv1: convolution([architecture.in_channels, planes], 7, 2, 1, factory)?,
            bn1: norm(planes, factory)?,
            relu: relu(),
            maxpool: halving_pool(),
            layer1: stage(first, planes, 1)?,
            layer2: stage(second, planes * 2, 2)?,
            layer3: stage(third, planes * 4, 2)?,
            layer4: stage(fourth, planes * 8, 2)?,
            avgpool: AdaptiveAvgPool2d::global(),
            fc: (classes > 0).then(fc).transpose()?,
            architecture: architecture.clone(),
            state: ModuleState::default(),
        })
    }

    fn stages(&self) -> [&SequentialOf<ResidualBlock>; 4] {
        [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
    }

    /// Kernels get other first values than a convolution gives itself.
    fn draw_convolutions(&self) -> Result<()> {
        self.parameters()
            .into_iter()
            .filter(|parameter| parameter.shape().len() == 4)
            .try_for_each(|kernel| {
                init::kaiming_normal_for(kernel.tensor(), init::Fan::Out, init::Nonlinearity::Relu)
            })
    }

    fn silence_blocks(&self) -> Result<()> {
        let blocks = self.stages().into_iter().flat_map(SequentialOf::layers);
        for scale in blocks.filter_map(|block| block.last_norm().weight.as_ref()) {
            init::constant(scale.tensor(), 0.0)?;
        }
        Ok(())
    }
}

/// Halves the size.
pub(super) fn halving_pool() -> MaxPool2d {
    let options = MaxPool2dOptions {
        stride: Some([2; 2]),
        padding: [1; 2],
        ..MaxPool2dOptions::default()
    };
    MaxPool2d::new([3; 2], options)
}

/// Copies the values of one linear layer into another.
fn copy(from: &Linear, to: &Linear) -> Result<()> {
    let pairs = [
        (Some(&from.weight), Some(&to.weight)),
        (from.bias.as_ref(), to.bias.as_ref()),
    ];
    for (from, to) in pairs.into_iter().filter_map(|(from, to)| from.zip(to)) {
        tch::no_grad(|| to.tensor().shallow_clone().f_copy_(from.tensor()))?;
    }
    Ok(())
}

impl Forward for ResNet {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, images: Tensor) -> Result<Tensor> {
        let hidden = self.relu.call(self.bn1.call(self.conv1.call(images)?)?)?;
        let hidden = self.maxpool.call(hidden)?;
        let hidden = self
            .stages()
            .into_iter()
            .try_fold(hidden, |hidden, stage| stage.call(hidden))?;
        let features = Flatten::default().forward(self.avgpool.call(hidden)?)?;
        match &self.fc {
            Some(fc) => fc.call(features),
            None => Ok(features),
        }
    }
}
