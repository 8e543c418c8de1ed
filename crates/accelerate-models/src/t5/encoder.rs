//! The encoder alone: text in, vectors out.

use accelerate::Result;
use accelerate::nn::{Embedding, Factory, Forward, Module, ModuleState};
use accelerate::tree::Tree;
use tch::Tensor;

use super::stack::init_module;
use super::{T5Config, T5Stack, T5StackInput};
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// What [`T5EncoderModel`] takes.
///
/// # Shapes
/// Each tensor is `[batch, tokens]`.
#[derive(Debug, Tree)]
pub struct T5EncoderInput {
    /// The token ids.
    pub input_ids: Tensor,
    /// Not zero where there is a token; absent where nothing is padded.
    pub attention_mask: Option<Tensor>,
}

/// T5's encoder with its embeddings.
///
/// # Shapes
/// - output: the state of each token, `[batch, tokens, d_model]`
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct T5EncoderModel {
    shared: Embedding,
    pub(super) encoder: T5Stack,
    #[module(skip)]
    config: T5Config,
    state: ModuleState,
}

impl PretrainedModel for T5EncoderModel {
    type Config = T5Config;

    const CHECKPOINT: Checkpoint =
        Checkpoint::new("transformer").with_ignored(&["decoder.", "lm_head."]);
    const PARTS: &'static [&'static str] = &["encoder"];

    fn build(config: &T5Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            shared: Embedding::new(config.vocab_size, config.d_model, factory)?,
            encoder: T5Stack::encoder(config, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &T5Config {
        &self.config
    }

    fn tie_weights(&mut self) {
        self.encoder.embed_tokens.weight = self.shared.weight.clone();
    }

    fn init_module(config: &T5Config, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

impl Forward for T5EncoderModel {
    type Input = T5EncoderInput;
    type Output = Tensor;

    fn forward(&self, input: T5EncoderInput) -> Result<Tensor> {
        self.encoder.call(T5StackInput {
            input_ids: input.input_ids,
            attention_mask: input.attention_mask,
            encoder_states: None,
            encoder_attention_mask: None,
            cache: None,
        })
    }
}
