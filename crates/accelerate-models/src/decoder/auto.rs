//! "A model that continues text", whatever its kind.

use accelerate::Result;
use tch::Tensor;

use crate::auto_model;
use crate::generation::{DecoderStep, GenerationProfile, GenerativeModel};
use crate::gpt2::GPT2LMHeadModel;
use crate::llama::LlamaForCausalLM;
use crate::mixtral::MixtralForCausalLM;

auto_model! {
    /// A model that predicts the next token and so continues text.
    ///
    /// # Source
    /// `AutoModelForCausalLM` of `transformers`.
    pub enum CausalLm for "text generation" {
        /// GPT-2.
        Gpt2(GPT2LMHeadModel),
        /// Llama.
        Llama(LlamaForCausalLM),
        /// Mixtral.
        Mixtral(MixtralForCausalLM),
    }
}

impl CausalLm {
    /// The model as what generation knows.
    pub fn generative(&self) -> &dyn GenerativeModel {
        match self {
            Self::Gpt2(model) => model,
            Self::Llama(model) => model,
            Self::Mixtral(model) => model,
        }
    }
}

impl GenerativeModel for CausalLm {
    fn generation_profile(&self) -> GenerationProfile {
        self.generative().generation_profile()
    }

    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor> {
        self.generative().next_token_logits(step)
    }
}
