//! Llama with the head that predicts the next token.

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use tch::Tensor;

use super::model::{IGNORED, init_module};
use super::{LlamaConfig, LlamaModel};
use crate::decoder::{CausalLmInput, CausalLmOutput, causal_lm_loss, last_token, step_input};
use crate::generation::{Architecture, DecoderStep, GenerationProfile, GenerativeModel};
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// Llama that predicts the next token; where the configuration says so, the head has the weights of
/// the token embeddings.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct LlamaForCausalLM {
    pub(super) model: LlamaModel,
    pub(super) lm_head: Linear,
    #[module(skip)]
    config: LlamaConfig,
    state: ModuleState,
}

impl PretrainedModel for LlamaForCausalLM {
    type Config = LlamaConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("model")
        .with_heads(&["lm_head"])
        .with_ignored(&[IGNORED, "score."]);
    const PARTS: &'static [&'static str] = &["model"];
    const NO_SPLIT: &'static [&'static str] = &["LlamaDecoderLayer"];
    const GENERATES: bool = true;

    fn build(config: &LlamaConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            model: LlamaModel::new_part(config, factory)?,
            lm_head: Linear::without_bias(config.hidden_size, config.vocab_size, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &LlamaConfig {
        &self.config
    }

    fn tie_weights(&mut self) {
        if self.config.tie_word_embeddings {
            self.lm_head.weight = self.model.embed_tokens.weight.clone();
        }
    }

    fn init_module(config: &LlamaConfig, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

impl Forward for LlamaForCausalLM {
    type Input = CausalLmInput;
    type Output = CausalLmOutput;

    fn forward(&self, input: CausalLmInput) -> Result<CausalLmOutput> {
        let mut hidden = self.model.call(input.decoder_input())?.last_hidden_state;
        if input.last_only {
            hidden = last_token(&hidden)?;
        }
        let logits = self.lm_head.call(hidden)?;
        let loss = input
            .labels
            .map(|labels| causal_lm_loss(&logits, &labels, input.num_items))
            .transpose()?;
        Ok(CausalLmOutput { loss, logits })
    }
}

impl GenerativeModel for LlamaForCausalLM {
    fn generation_profile(&self) -> GenerationProfile {
        GenerationProfile {
            architecture: Architecture::Decoder,
            vocab_size: self.config.vocab_size,
            num_layers: self.config.num_hidden_layers,
            max_positions: self.model.limit(),
        }
    }

    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor> {
        Ok(self.call(step_input(step))?.logits.f_select(1, 0)?)
    }
}
