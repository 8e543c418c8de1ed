//! The bare model.

use accelerate::nn::{Embedding, Factory, Forward, Module, ModuleState, RmsNorm, RotaryEmbedding};
use accelerate::{Error, Result};

use super::layer::norm;
use super::{LlamaConfig, LlamaDecoderLayer};
use crate::decoder::{
    DecoderInput, DecoderLayerInput, DecoderOutput, Prepared, Reach, longest_sequence,
};
use crate::pretrained::{
    Checkpoint, InitNode, PretrainedConfig, PretrainedModel, usual_first_values,
};

/// A table that older checkpoints carry and that follows from the configuration.
pub(super) const IGNORED: &str = "rotary_emb.inv_freq";

/// The decoder with its embeddings and its last normalisation.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct LlamaModel {
    pub(super) embed_tokens: Embedding,
    pub(super) layers: Vec<LlamaDecoderLayer>,
    pub(super) norm: RmsNorm,
    pub(super) rotary_emb: RotaryEmbedding,
    #[module(skip)]
    limit: Option<i64>,
    #[module(skip)]
    config: LlamaConfig,
    state: ModuleState,
}

impl LlamaModel {
    /// The longest sequence; none where rotary positions stretch with it.
    pub(super) fn limit(&self) -> Option<i64> {
        self.limit
    }

    /// How far it sees.
    pub(super) fn reach(&self) -> Reach {
        Reach {
            model: "LlamaModel",
            vocab_size: self.config.vocab_size,
            max_positions: self.limit,
            window: None,
        }
    }
}

impl PretrainedModel for LlamaModel {
    type Config = LlamaConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("model").with_ignored(&[IGNORED, "lm_head."]);

    fn build(config: &LlamaConfig, factory: &Factory) -> Result<Self> {
        let rotary = config.rotary().map_err(|error| unchecked(&error))?;
        let limit = longest_sequence(&rotary);
        let (tokens, width) = (config.vocab_size, config.hidden_size);
        Ok(Self {
            embed_tokens: match config.pad_token_id {
                Some(pad) => Embedding::with_padding(tokens, width, pad, factory)?,
                None => Embedding::new(tokens, width, factory)?,
            },
            layers: (0..config.num_hidden_layers)
                .map(|_| LlamaDecoderLayer::new(config, factory))
                .collect::<Result<_>>()?,
            norm: norm(config, factory)?,
            rotary_emb: RotaryEmbedding::new(rotary, factory.device())?
                .with_class_name("LlamaRotaryEmbedding"),
            limit,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &LlamaConfig {
        &self.config
    }

    fn init_module(config: &LlamaConfig, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

pub(super) fn init_module(config: &LlamaConfig, node: &InitNode<'_>) -> Result<()> {
    usual_first_values(node, config.initializer_range())?;
    match config.pad_token_id {
        Some(pad) if node.class() == "Embedding" => node.zero_row("weight", pad),
        _ => Ok(()),
    }
}

/// A configuration that was to be checked before a model is built from it.
pub(crate) fn unchecked(error: &crate::Error) -> Error {
    Error::Argument {
        operation: "PretrainedModel::build",
        expected: "a configuration that `check` accepts".to_owned(),
        found: error.to_string(),
    }
}

impl Forward for LlamaModel {
    type Input = DecoderInput;
    type Output = DecoderOutput;

    fn forward(&self, mut input: DecoderInput) -> Result<DecoderOutput> {
        let Prepared { positions, mask } = Prepared::new(&mut input, self.reach())?;
        let hidden = self.embed_tokens.call(&input.input_ids)?;
        let angles = self.rotary_emb.call((&hidden, &positions))?;
        let mut layer_input = DecoderLayerInput {
            hidden,
            mask,
            angles: Some(angles),
            cache: None,
        };
        for (number, layer) in self.layers.iter().enumerate() {
            layer_input.cache = match &input.cache {
                Some(cache) => Some(cache.layer(number)?.clone()),
                None => None,
            };
            let own = layer_input.with_hidden(layer_input.hidden.shallow_clone());
            layer_input.hidden = layer.call(own)?;
        }
        Ok(DecoderOutput {
            last_hidden_state: self.norm.call(layer_input.hidden)?,
        })
    }
}
