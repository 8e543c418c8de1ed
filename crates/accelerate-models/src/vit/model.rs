//! The bare model.

use accelerate::Result;
use accelerate::nn::{Activation, Factory, Forward, LayerNorm, Linear, Module, ModuleState, init};
use accelerate::tree::Tree;
use tch::Tensor;

use super::{ViTConfig, ViTEmbeddings, ViTLayer};
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel, usual_first_values};

/// Parts of names in checkpoints from before transformers 5, with what they are called now.
pub(super) const RENAMED_PARTS: &[(&str, &str)] = &[
    ("encoder.layer.", "layers."),
    ("attention.attention.query.", "attention.q_proj."),
    ("attention.attention.key.", "attention.k_proj."),
    ("attention.attention.value.", "attention.v_proj."),
    ("attention.output.dense.", "attention.o_proj."),
    ("intermediate.dense.", "mlp.fc1."),
    ("output.dense.", "mlp.fc2."),
];

/// How far new vectors may be from zero.
const BOUND: f64 = 2.0;

/// The state of the whole image, through a dense layer and a function.
///
/// # Shapes
/// `[batch, vectors, hidden_size]` to `[batch, pooler_output_size]`.
#[derive(Debug, Clone, Module)]
pub struct ViTPooler {
    dense: Linear,
    activation: Activation,
    state: ModuleState,
}

impl ViTPooler {
    fn new(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let width = config.hidden_size;
        let outputs = config.pooler_output_size.unwrap_or(width);
        Ok(Self {
            dense: Linear::new(width, outputs, factory)?,
            activation: Activation::new(config.pooler_act.into()),
            state: ModuleState::default(),
        })
    }
}

impl Forward for ViTPooler {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        self.activation
            .call(self.dense.call(hidden.f_select(1, 0)?)?)
    }
}

/// What [`ViTModel`] takes.
#[derive(Debug, Tree)]
pub struct ViTModelInput {
    /// The images, `[batch, num_channels, height, width]`.
    pub pixel_values: Tensor,
    /// Whether positions are stretched over images of another size than the configuration's.
    pub interpolate_pos_encoding: bool,
}

/// What [`ViTModel`] gives.
#[derive(Debug, Tree)]
pub struct ViTModelOutput {
    /// The state of the whole image, then of each patch, `[batch, 1 + patches, hidden_size]`.
    pub last_hidden_state: Tensor,
    /// One vector for each image, `[batch, pooler_output_size]`, where there is a pooler.
    pub pooler_output: Option<Tensor>,
}

/// The encoder with its embeddings and its pooler.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct ViTModel {
    embeddings: ViTEmbeddings,
    layers: Vec<ViTLayer>,
    layernorm: LayerNorm,
    pooler: Option<ViTPooler>,
    #[module(skip)]
    config: ViTConfig,
    state: ModuleState,
}

impl ViTModel {
    /// The model without a pooler, as part of a model with a head.
    pub(super) fn without_pooler(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        Self::encoder(config, factory)?.with_first_values(factory)
    }

    fn encoder(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let layers = 0..config.num_hidden_layers;
        Ok(Self {
            embeddings: ViTEmbeddings::new(config, factory)?,
            layers: layers
                .map(|_| ViTLayer::new(config, factory))
                .collect::<Result<_>>()?,
            layernorm: LayerNorm::new(config.hidden_size, config.layer_norm_eps, factory)?,
            pooler: None,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }
}

impl PretrainedModel for ViTModel {
    type Config = ViTConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("vit")
        .with_heads(&["pooler"])
        .with_ignored(&["classifier.", "decoder.", "embeddings.mask_token"])
        .with_renamed_parts(RENAMED_PARTS);

    fn build(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            pooler: Some(ViTPooler::new(config, factory)?),
            ..Self::encoder(config, factory)?
        })
    }

    fn config(&self) -> &ViTConfig {
        &self.config
    }

    fn init_module(config: &ViTConfig, node: &InitNode<'_>) -> Result<()> {
        first_values(config, node)
    }
}

/// Vectors from a normal distribution that is cut off far out, all else as usual.
///
/// # Source
/// `ViTPreTrainedModel._init_weights`.
pub(super) fn first_values(config: &ViTConfig, node: &InitNode<'_>) -> Result<()> {
    let std = config.initializer_range;
    if node.class() != "ViTEmbeddings" {
        return usual_first_values(node, std);
    }
    for vectors in ["position_embeddings", "cls_token"] {
        node.fill(vectors, |vectors| {
            init::trunc_normal(vectors, 0.0, std, -BOUND, BOUND)
        })?;
    }
    Ok(())
}

impl Forward for ViTModel {
    type Input = ViTModelInput;
    type Output = ViTModelOutput;

    fn forward(&self, input: ViTModelInput) -> Result<ViTModelOutput> {
        let ViTModelInput {
            pixel_values,
            interpolate_pos_encoding,
        } = input;
        let kind = self.embeddings.kind()?;
        let pixel_values = pixel_values.f_to_kind(kind)?;
        let embedded = self
            .embeddings
            .call((pixel_values, interpolate_pos_encoding))?;
        let hidden = self.layers.iter().try_fold(embedded, |hidden, layer| {
            layer.call((hidden, None::<Tensor>))
        })?;
        let last_hidden_state = self.layernorm.call(hidden)?;
        let pooler_output = self
            .pooler
            .as_ref()
            .map(|pooler| pooler.call(&last_hidden_state))
            .transpose()?;
        Ok(ViTModelOutput {
            last_hidden_state,
            pooler_output,
        })
    }
}
