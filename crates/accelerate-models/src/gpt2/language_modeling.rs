//! GPT-2 with the head that predicts the next token.

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use tch::Tensor;

use super::model::{IGNORED, init_module};
use super::{GPT2Config, GPT2Model};
use crate::decoder::{CausalLmInput, CausalLmOutput, causal_lm_loss, last_token, step_input};
use crate::generation::{Architecture, DecoderStep, GenerationProfile, GenerativeModel};
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// GPT-2 that predicts the next token; the head has the weights of the token embeddings.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct GPT2LMHeadModel {
    pub(super) transformer: GPT2Model,
    pub(super) lm_head: Linear,
    #[module(skip)]
    config: GPT2Config,
    state: ModuleState,
}

impl PretrainedModel for GPT2LMHeadModel {
    type Config = GPT2Config;

    const CHECKPOINT: Checkpoint = Checkpoint::new("transformer")
        .with_heads(&["lm_head"])
        .with_ignored(&[IGNORED[0], IGNORED[1], "score.", "multiple_choice_head."]);
    const PARTS: &'static [&'static str] = &["transformer"];
    const NO_SPLIT: &'static [&'static str] = &["GPT2Block"];
    const GENERATES: bool = true;

    fn build(config: &GPT2Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            transformer: GPT2Model::new_part(config, factory)?,
            lm_head: Linear::without_bias(config.n_embd, config.vocab_size, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &GPT2Config {
        &self.config
    }

    fn tie_weights(&mut self) {
        if self.config.tie_word_embeddings {
            self.lm_head.weight = self.transformer.wte.weight.clone();
        }
    }

    fn init_module(config: &GPT2Config, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

impl Forward for GPT2LMHeadModel {
    type Input = CausalLmInput;
    type Output = CausalLmOutput;

    fn forward(&self, input: CausalLmInput) -> Result<CausalLmOutput> {
        let mut hidden = self
            .transformer
            .call(input.decoder_input())?
            .last_hidden_state;
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

impl GenerativeModel for GPT2LMHeadModel {
    fn generation_profile(&self) -> GenerationProfile {
        GenerationProfile {
            architecture: Architecture::Decoder,
            vocab_size: self.config.vocab_size,
            num_layers: self.config.n_layer,
            max_positions: Some(self.config.n_positions),
        }
    }

    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor> {
        Ok(self.call(step_input(step))?.logits.f_select(1, 0)?)
    }
}
