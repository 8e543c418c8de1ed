//! ResNet as transformers has it, bare and with a classifier.

use accelerate::Result;
use accelerate::nn::{
    AdaptiveAvgPool2d, Factory, Flatten, Forward, Linear, Module, ModuleState, init,
};
use accelerate::tree::Tree;
use tch::Tensor;

use super::{ResNetConfig, ResNetEmbeddings, ResNetEncoder};
use crate::image_classification::{ImageClassifierOutput, ImageInput};
use crate::loss::ProblemType;
use crate::pretrained::{
    Checkpoint, InitNode, PretrainedConfig, PretrainedModel, usual_first_values,
};

/// What [`ResNetModel`] gives.
#[derive(Debug, Tree)]
pub struct ResNetModelOutput {
    /// What the last stage gives, `[batch, channels, height, width]`.
    pub last_hidden_state: Tensor,
    /// Its mean over height and width, `[batch, channels, 1, 1]`.
    pub pooler_output: Tensor,
}

/// The network without a classifier.
///
/// # Shapes
/// Input: `[batch, num_channels, height, width]`, best with multiples of 32.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct ResNetModel {
    embedder: ResNetEmbeddings,
    encoder: ResNetEncoder,
    pooler: AdaptiveAvgPool2d,
    #[module(skip)]
    config: ResNetConfig,
    state: ModuleState,
}

impl PretrainedModel for ResNetModel {
    type Config = ResNetConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("resnet").with_ignored(&["classifier."]);

    fn build(config: &ResNetConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            embedder: ResNetEmbeddings::new(config, factory)?,
            encoder: ResNetEncoder::new(config, factory)?,
            pooler: AdaptiveAvgPool2d::global(),
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &ResNetConfig {
        &self.config
    }

    fn init_module(config: &ResNetConfig, node: &InitNode<'_>) -> Result<()> {
        first_values(config, node)
    }
}

impl Forward for ResNetModel {
    type Input = Tensor;
    type Output = ResNetModelOutput;

    fn forward(&self, images: Tensor) -> Result<ResNetModelOutput> {
        let last_hidden_state = self.encoder.call(self.embedder.call(images)?)?;
        let pooler_output = self.pooler.call(&last_hidden_state)?;
        Ok(ResNetModelOutput {
            last_hidden_state,
            pooler_output,
        })
    }
}

/// The classifier: a linear layer over the pooled channels.
///
/// # Shapes
/// `[batch, channels, 1, 1]` to `[batch, num_labels]`.
#[derive(Debug, Clone, Module)]
#[module(class = "Sequential")]
pub struct ResNetHead {
    #[module(name = "0")]
    flatten: Flatten,
    #[module(name = "1")]
    linear: Option<Linear>,
    state: ModuleState,
}

impl ResNetHead {
    fn new(config: &ResNetConfig, factory: &Factory) -> Result<Self> {
        let (features, labels) = (config.num_features(), config.num_labels());
        let linear = || Linear::new(features, labels, factory);
        Ok(Self {
            flatten: Flatten::default(),
            linear: (labels > 0).then(linear).transpose()?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ResNetHead {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, pooled: Tensor) -> Result<Tensor> {
        let features = self.flatten.call(pooled)?;
        match &self.linear {
            Some(linear) => linear.call(features),
            None => Ok(features),
        }
    }
}

/// The network with a classifier of images.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct ResNetForImageClassification {
    resnet: ResNetModel,
    classifier: ResNetHead,
    #[module(skip)]
    config: ResNetConfig,
    state: ModuleState,
}

impl PretrainedModel for ResNetForImageClassification {
    type Config = ResNetConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("resnet").with_heads(&["classifier"]);
    const PARTS: &'static [&'static str] = &["resnet"];

    fn build(config: &ResNetConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            resnet: ResNetModel::new_part(config, factory)?,
            classifier: ResNetHead::new(config, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &ResNetConfig {
        &self.config
    }

    fn init_module(config: &ResNetConfig, node: &InitNode<'_>) -> Result<()> {
        first_values(config, node)
    }
}

impl Forward for ResNetForImageClassification {
    type Input = ImageInput;
    type Output = ImageClassifierOutput;

    fn forward(&self, input: ImageInput) -> Result<ImageClassifierOutput> {
        let pooled = self.resnet.call(input.pixel_values)?.pooler_output;
        let logits = self.classifier.call(pooled)?;
        let problem = self.config.problem_type;
        let loss = ProblemType::loss_of(problem, &logits, input.labels.as_ref())?;
        Ok(ImageClassifierOutput { loss, logits })
    }
}

/// Kernels by their fan-out, the classifier as a linear layer gives itself. The usual values are
/// drawn before, as the original does.
///
/// # Source
/// `ResNetPreTrainedModel._init_weights`.
fn first_values(config: &ResNetConfig, node: &InitNode<'_>) -> Result<()> {
    usual_first_values(node, config.initializer_range())?;
    match node.class() {
        "Conv2d" => node.fill("weight", |tensor| {
            init::kaiming_normal_for(tensor, init::Fan::Out, init::Nonlinearity::Relu)
        }),
        "Linear" => {
            let mut inputs = 1;
            node.fill("weight", |weight| {
                inputs = init::fan_in(weight)?.max(1);
                init::kaiming_uniform(weight, 5.0_f64.sqrt())
            })?;
            let bound = 1.0 / (inputs as f64).sqrt();
            node.fill("bias", |bias| init::uniform(bias, -bound, bound))
        }
        _ => Ok(()),
    }
}
