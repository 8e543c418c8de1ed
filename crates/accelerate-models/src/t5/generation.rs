//! T5 as a model that writes text.

use accelerate::nn::Forward;
use accelerate::{Error, Result};
use tch::Tensor;

use super::{T5ForConditionalGeneration, T5Input, T5StackInput};
use crate::generation::{
    Architecture, DecoderStep, EncoderStates, GenerationProfile, GenerativeModel,
};
use crate::pretrained::PretrainedModel;

impl GenerativeModel for T5ForConditionalGeneration {
    fn generation_profile(&self) -> GenerationProfile {
        let config = self.config();
        GenerationProfile {
            architecture: Architecture::EncoderDecoder,
            vocab_size: config.vocab_size,
            num_layers: config.num_decoder_layers(),
            max_positions: None,
        }
    }

    fn encode(&self, input_ids: &Tensor, attention_mask: Option<&Tensor>) -> Result<EncoderStates> {
        let attention_mask = attention_mask.map(Tensor::shallow_clone);
        let last_hidden_state = self.encoder.call(T5StackInput {
            input_ids: input_ids.shallow_clone(),
            attention_mask: attention_mask.as_ref().map(Tensor::shallow_clone),
            encoder_states: None,
            encoder_attention_mask: None,
            cache: None,
        })?;
        Ok(EncoderStates {
            last_hidden_state,
            attention_mask,
        })
    }

    // Distances are all that T5 knows of positions, so those of the step are not looked at.
    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor> {
        let encoder = step.encoder.ok_or_else(|| Error::Argument {
            operation: "T5ForConditionalGeneration::next_token_logits",
            expected: "the encoder's states".to_owned(),
            found: "none".to_owned(),
        })?;
        let output = self.call(T5Input {
            encoder_states: Some(encoder.last_hidden_state.shallow_clone()),
            attention_mask: encoder.attention_mask.as_ref().map(Tensor::shallow_clone),
            decoder_input_ids: Some(step.input_ids.shallow_clone()),
            decoder_attention_mask: step.attention_mask.map(Tensor::shallow_clone),
            cache: Some(step.cache.clone()),
            ..T5Input::default()
        })?;
        Ok(output.logits.f_select(1, -1)?)
    }
}
