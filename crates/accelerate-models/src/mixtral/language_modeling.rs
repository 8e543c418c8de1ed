//! Mixtral with the head that predicts the next token.

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState, load_balancing_loss};
use accelerate::tree::Tree;
use tch::Tensor;

use super::model::init_module;
use super::{MixtralConfig, MixtralModel};
use crate::decoder::{CausalLmInput, causal_lm_loss, last_token, step_input};
use crate::generation::{Architecture, DecoderStep, GenerationProfile, GenerativeModel};
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// What [`MixtralForCausalLM`] gives.
#[derive(Debug, Tree)]
pub struct MoeCausalLmOutput {
    /// The loss, where labels were given; with the weighted auxiliary loss, where there is one.
    pub loss: Option<Tensor>,
    /// How unevenly the routers deal out tokens, where the configuration asks for it.
    pub aux_loss: Option<Tensor>,
    /// The score of each next token, `[rows, new, vocab_size]`, or `[rows, 1, vocab_size]` where
    /// only the last was asked for.
    pub logits: Tensor,
}

/// Mixtral that predicts the next token; where the configuration says so, the head has the weights of
/// the token embeddings.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct MixtralForCausalLM {
    model: MixtralModel,
    lm_head: Linear,
    #[module(skip)]
    config: MixtralConfig,
    state: ModuleState,
}

impl PretrainedModel for MixtralForCausalLM {
    type Config = MixtralConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("model")
        .with_heads(&["lm_head"])
        .with_ignored(&["score."]);
    const PARTS: &'static [&'static str] = &["model"];
    const NO_SPLIT: &'static [&'static str] = &["MixtralDecoderLayer"];
    const GENERATES: bool = true;

    fn build(config: &MixtralConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            model: MixtralModel::new_part(config, factory)?,
            lm_head: Linear::without_bias(config.hidden_size, config.vocab_size, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &MixtralConfig {
        &self.config
    }

    fn tie_weights(&mut self) {
        if self.config.tie_word_embeddings {
            self.lm_head.weight = self.model.embed_tokens.weight.clone();
        }
    }

    fn init_module(config: &MixtralConfig, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

impl MixtralForCausalLM {
    fn aux_loss(&self, router_logits: &[Tensor], mask: Option<&Tensor>) -> Result<Option<Tensor>> {
        if !self.config.output_router_logits {
            return Ok(None);
        }
        // A finished mask of four dimensions does not say what is padding.
        let mask = mask.filter(|mask| mask.dim() == 2);
        let top_k = self.config.num_experts_per_tok;
        load_balancing_loss(router_logits, top_k, mask).map(Some)
    }
}

impl Forward for MixtralForCausalLM {
    type Input = CausalLmInput;
    type Output = MoeCausalLmOutput;

    fn forward(&self, input: CausalLmInput) -> Result<MoeCausalLmOutput> {
        let decoded = self.model.call(input.decoder_input())?;
        let mut hidden = decoded.last_hidden_state;
        if input.last_only {
            hidden = last_token(&hidden)?;
        }
        let logits = self.lm_head.call(hidden)?;
        // Steps of generation see one token of many, and train nothing.
        let aux_loss = match &input.cache {
            Some(_) => None,
            None => self.aux_loss(&decoded.router_logits, input.attention_mask.as_ref())?,
        };
        let mut loss = input
            .labels
            .map(|labels| causal_lm_loss(&logits, &labels, input.num_items))
            .transpose()?;
        if let (Some(own), Some(aux)) = (&loss, &aux_loss) {
            let weighted = aux.f_mul_scalar(self.config.router_aux_loss_coef)?;
            loss = Some(own.f_add(&weighted)?);
        }
        Ok(MoeCausalLmOutput {
            loss,
            aux_loss,
            logits,
        })
    }
}

impl GenerativeModel for MixtralForCausalLM {
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
