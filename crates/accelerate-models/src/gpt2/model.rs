//! The bare model.

use accelerate::Result;
use accelerate::nn::{Dropout, Embedding, Factory, Forward, LayerNorm, Module, ModuleState};
use tch::Tensor;

use super::{GPT2Block, GPT2Config};
use crate::decoder::{DecoderInput, DecoderLayerInput, DecoderOutput, Prepared, Reach};
use crate::pretrained::{
    Checkpoint, InitNode, PretrainedConfig, PretrainedModel, usual_first_values,
};

/// Tables that older checkpoints carry: the causal mask, and the value of what it hides.
pub(super) const IGNORED: [&str; 2] = ["attn.bias", "attn.masked_bias"];

/// The decoder with its embeddings and its last normalisation.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct GPT2Model {
    pub(super) wte: Embedding,
    wpe: Embedding,
    drop: Dropout,
    pub(super) h: Vec<GPT2Block>,
    pub(super) ln_f: LayerNorm,
    #[module(skip)]
    config: GPT2Config,
    state: ModuleState,
}

impl PretrainedModel for GPT2Model {
    type Config = GPT2Config;

    const CHECKPOINT: Checkpoint = Checkpoint::new("transformer").with_ignored(&[
        IGNORED[0],
        IGNORED[1],
        "lm_head.",
        "score.",
        "multiple_choice_head.",
    ]);

    fn build(config: &GPT2Config, factory: &Factory) -> Result<Self> {
        let width = config.n_embd;
        Ok(Self {
            wte: Embedding::new(config.vocab_size, width, factory)?,
            wpe: Embedding::new(config.n_positions, width, factory)?,
            drop: Dropout::new(config.embd_pdrop)?,
            h: (0..config.n_layer)
                .map(|layer| GPT2Block::new(config, layer, factory))
                .collect::<Result<_>>()?,
            ln_f: LayerNorm::new(width, config.layer_norm_epsilon, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &GPT2Config {
        &self.config
    }

    fn init_module(config: &GPT2Config, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

/// The usual first values; what a layer adds begins smaller the more layers there are.
pub(super) fn init_module(config: &GPT2Config, node: &InitNode<'_>) -> Result<()> {
    let std = config.initializer_range();
    usual_first_values(node, std)?;
    match node.class() {
        "Conv1D" => {
            node.normal("weight", std)?;
            node.constant("bias", 0.0)
        }
        // Two of them are added in each layer.
        "GPT2Attention" | "GPT2MLP" => {
            node.normal("c_proj.weight", std / (2.0 * config.n_layer as f64).sqrt())
        }
        _ => Ok(()),
    }
}

impl GPT2Model {
    /// How far it sees.
    pub(super) fn reach(&self) -> Reach {
        Reach {
            model: "GPT2Model",
            vocab_size: self.config.vocab_size,
            max_positions: Some(self.config.n_positions),
            window: None,
        }
    }

    /// What the first layer gets.
    pub(super) fn embed(&self, input_ids: &Tensor, positions: Tensor) -> Result<Tensor> {
        let words = self.wte.call(input_ids)?;
        self.drop.call(words.f_add(&self.wpe.call(positions)?)?)
    }
}

impl Forward for GPT2Model {
    type Input = DecoderInput;
    type Output = DecoderOutput;

    fn forward(&self, mut input: DecoderInput) -> Result<DecoderOutput> {
        let Prepared { positions, mask } = Prepared::new(&mut input, self.reach())?;
        let mut layer_input = DecoderLayerInput {
            hidden: self.embed(&input.input_ids, positions)?,
            mask,
            angles: None,
            cache: None,
        };
        for (number, block) in self.h.iter().enumerate() {
            layer_input.cache = match &input.cache {
                Some(cache) => Some(cache.layer(number)?.clone()),
                None => None,
            };
            let own = layer_input.with_hidden(layer_input.hidden.shallow_clone());
            layer_input.hidden = block.call(own)?;
        }
        Ok(DecoderOutput {
            last_hidden_state: self.ln_f.call(layer_input.hidden)?,
        })
    }
}
