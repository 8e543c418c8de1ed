//! The bare model.

use accelerate::Result;
use accelerate::nn::{Embedding, Factory, Forward, Module, ModuleState, RmsNorm, RotaryEmbedding};
use accelerate::tree::Tree;
use tch::Tensor;

use super::block::{MOE_CLASS, norm};
use super::{MixtralConfig, MixtralDecoderLayer};
use crate::decoder::{DecoderInput, DecoderLayerInput, Prepared, Reach, longest_sequence};
use crate::llama::unchecked;
use crate::pretrained::{
    Checkpoint, InitNode, PretrainedConfig, PretrainedModel, usual_first_values,
};

/// What the bare model gives.
#[derive(Debug, Tree)]
pub struct MoeDecoderOutput {
    /// The state of each token, `[rows, new, hidden_size]`.
    pub last_hidden_state: Tensor,
    /// What each layer's router says of each expert, `[rows * new, experts]`.
    pub router_logits: Vec<Tensor>,
}

/// The decoder with its embeddings and its last normalisation.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct MixtralModel {
    pub(super) embed_tokens: Embedding,
    layers: Vec<MixtralDecoderLayer>,
    norm: RmsNorm,
    rotary_emb: RotaryEmbedding,
    #[module(skip)]
    limit: Option<i64>,
    #[module(skip)]
    config: MixtralConfig,
    state: ModuleState,
}

impl MixtralModel {
    /// The longest sequence; none where rotary positions stretch with it.
    pub(super) fn limit(&self) -> Option<i64> {
        self.limit
    }
}

impl PretrainedModel for MixtralModel {
    type Config = MixtralConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("model").with_ignored(&["lm_head."]);

    fn build(config: &MixtralConfig, factory: &Factory) -> Result<Self> {
        let rotary = config.rotary().map_err(|error| unchecked(&error))?;
        let limit = longest_sequence(&rotary);
        let (tokens, width) = (config.vocab_size, config.hidden_size);
        Ok(Self {
            embed_tokens: match config.pad_token_id {
                Some(pad) => Embedding::with_padding(tokens, width, pad, factory)?,
                None => Embedding::new(tokens, width, factory)?,
            },
            layers: (0..config.num_hidden_layers)
                .map(|_| MixtralDecoderLayer::new(config, factory))
                .collect::<Result<_>>()?,
            norm: norm(config, factory)?,
            rotary_emb: RotaryEmbedding::new(rotary, factory.device())?
                .with_class_name("MixtralRotaryEmbedding"),
            limit,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &MixtralConfig {
        &self.config
    }

    fn init_module(config: &MixtralConfig, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

/// As the original, whose experts of a layer are two tensors: all that go in, then all that come out.
pub(super) fn init_module(config: &MixtralConfig, node: &InitNode<'_>) -> Result<()> {
    let std = config.initializer_range();
    if node.name().contains(".experts.") {
        return Ok(());
    }
    if node.class() == MOE_CLASS {
        for expert in 0..config.num_local_experts {
            node.normal(&format!("experts.{expert}.w1.weight"), std)?;
            node.normal(&format!("experts.{expert}.w3.weight"), std)?;
        }
        for expert in 0..config.num_local_experts {
            node.normal(&format!("experts.{expert}.w2.weight"), std)?;
        }
        return Ok(());
    }
    usual_first_values(node, std)?;
    match config.pad_token_id {
        Some(pad) if node.class() == "Embedding" => node.zero_row("weight", pad),
        _ => Ok(()),
    }
}

impl Forward for MixtralModel {
    type Input = DecoderInput;
    type Output = MoeDecoderOutput;

    fn forward(&self, mut input: DecoderInput) -> Result<MoeDecoderOutput> {
        let Prepared { positions, mask } = Prepared::new(
            &mut input,
            Reach {
                model: "MixtralModel",
                vocab_size: self.config.vocab_size,
                max_positions: self.limit,
                window: self.config.sliding_window,
            },
        )?;
        let hidden = self.embed_tokens.call(&input.input_ids)?;
        let angles = self.rotary_emb.call((&hidden, &positions))?;
        let mut layer_input = DecoderLayerInput {
            hidden,
            mask,
            angles: Some(angles),
            cache: None,
        };
        let mut router_logits = Vec::with_capacity(self.layers.len());
        for (number, layer) in self.layers.iter().enumerate() {
            layer_input.cache = match &input.cache {
                Some(cache) => Some(cache.layer(number)?.clone()),
                None => None,
            };
            let own = layer_input.with_hidden(layer_input.hidden.shallow_clone());
            let (hidden, logits) = layer.call(own)?;
            layer_input.hidden = hidden;
            router_logits.push(logits);
        }
        Ok(MoeDecoderOutput {
            last_hidden_state: self.norm.call(layer_input.hidden)?,
            router_logits,
        })
    }
}
