//! The whole model: text in, text out.

use accelerate::checkpoint::Weights;
use accelerate::nn::{Embedding, Factory, Forward, Linear, Module, ModuleState};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::Tensor;

use super::stack::init_module;
use super::{T5Config, T5Stack, T5StackInput};
use crate::generation::KeyValueCache;
use crate::loss::{IGNORED_LABEL, cross_entropy};
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// What [`T5ForConditionalGeneration`] takes.
///
/// # Shapes
/// Ids, masks and labels are `[batch, tokens]`, of the encoder's or the decoder's length.
#[derive(Debug, Default, Tree)]
pub struct T5Input {
    /// The token ids of the text to read; not looked at where there are encoder states.
    pub input_ids: Option<Tensor>,
    /// Not zero where that text has a token; absent where nothing is padded.
    pub attention_mask: Option<Tensor>,
    /// What the encoder made of the text: `[batch, tokens, d_model]`.
    pub encoder_states: Option<Tensor>,
    /// The token ids that the decoder reads; the labels shifted by one where absent.
    pub decoder_input_ids: Option<Tensor>,
    /// Not zero where the decoder's text has a token; absent where nothing is padded.
    pub decoder_attention_mask: Option<Tensor>,
    /// The text to write, [`IGNORED_LABEL`] for padding; with it there is a loss.
    pub labels: Option<Tensor>,
    /// Keys and values of the decoder's tokens before.
    pub cache: Option<KeyValueCache>,
}

/// What [`T5ForConditionalGeneration`] gives.
#[derive(Debug, Tree)]
pub struct Seq2SeqLMOutput {
    /// The mean loss over all labels, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each token of the vocabulary, `[batch, decoder tokens, vocab_size]`.
    pub logits: Tensor,
    /// The state of each token of the text that was read, `[batch, tokens, d_model]`.
    pub encoder_last_hidden_state: Tensor,
}

/// T5 with an output layer over the vocabulary.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct T5ForConditionalGeneration {
    shared: Embedding,
    pub(super) encoder: T5Stack,
    decoder: T5Stack,
    lm_head: Linear,
    #[module(skip)]
    config: T5Config,
    state: ModuleState,
}

impl PretrainedModel for T5ForConditionalGeneration {
    type Config = T5Config;

    const CHECKPOINT: Checkpoint = Checkpoint::new("transformer").with_ignored(&[
        // Old checkpoints have it, and no model ever used it.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ]);
    const PARTS: &'static [&'static str] = &["encoder", "decoder"];
    const NO_SPLIT: &'static [&'static str] = &["T5Block"];
    const GENERATES: bool = true;

    fn build(config: &T5Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            shared: Embedding::new(config.vocab_size, config.d_model, factory)?,
            encoder: T5Stack::encoder(config, factory)?,
            decoder: T5Stack::decoder(config, factory)?,
            lm_head: Linear::without_bias(config.d_model, config.vocab_size, factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &T5Config {
        &self.config
    }

    fn tie_weights(&mut self) {
        self.encoder.embed_tokens.weight = self.shared.weight.clone();
        self.decoder.embed_tokens.weight = self.shared.weight.clone();
        if self.config.tie_word_embeddings {
            self.lm_head.weight = self.shared.weight.clone();
        }
    }

    fn init_module(config: &T5Config, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }

    /// Whether the output layer has weights of its own is told by the file: there are
    /// configurations that say the opposite of it.
    fn fit_config(config: &T5Config, weights: &Weights) -> Result<T5Config> {
        let own = "lm_head.weight";
        // Not where it is another name of a tensor that the file has once.
        let own = weights.find(own).filter(|found| found.name() == own);
        let shared = ["shared.weight", "encoder.embed_tokens.weight"]
            .into_iter()
            .find_map(|name| weights.find(name));
        let tied = match (own, shared) {
            (Some(own), Some(shared)) => {
                let one = own.shares_storage_with(&shared) || *own.bytes()? == *shared.bytes()?;
                one && config.tie_word_embeddings
            }
            _ => true,
        };
        let mut fitted = config.clone();
        fitted.scale_decoder_outputs = Some(config.scale_decoder_outputs());
        fitted.tie_word_embeddings = tied;
        Ok(fitted)
    }
}

impl T5ForConditionalGeneration {
    /// What the decoder reads where these are to be written: the start token, then all but the
    /// last.
    fn shifted(&self, labels: &Tensor) -> Result<Tensor> {
        let needed = |key: &str, value: Option<i64>| {
            value.ok_or_else(|| Error::Argument {
                operation: "T5ForConditionalGeneration",
                expected: format!("`{key}` in the configuration, or `decoder_input_ids`"),
                found: "neither".to_owned(),
            })
        };
        let config = &self.config;
        let start = needed("decoder_start_token_id", config.decoder_start_token_id)?;
        let padding = needed("pad_token_id", config.pad_token_id)?;
        let (batch, tokens) = labels.size2()?;
        let first = labels.f_new_full([batch, 1], start, (labels.f_kind()?, labels.device()))?;
        let rest = labels.f_narrow(1, 0, (tokens - 1).max(0))?;
        let rest = rest.f_masked_fill(&rest.f_eq(IGNORED_LABEL)?, padding)?;
        Ok(Tensor::f_cat(&[first, rest], 1)?)
    }

    fn encoder_states(&self, input: &T5Input) -> Result<Tensor> {
        match (&input.encoder_states, &input.input_ids) {
            (Some(states), _) => Ok(states.shallow_clone()),
            (None, Some(ids)) => self.encoder.call(T5StackInput {
                input_ids: ids.shallow_clone(),
                attention_mask: input.attention_mask.as_ref().map(Tensor::shallow_clone),
                encoder_states: None,
                encoder_attention_mask: None,
                cache: None,
            }),
            (None, None) => Err(missing("`input_ids` or `encoder_states`")),
        }
    }
}

impl Forward for T5ForConditionalGeneration {
    type Input = T5Input;
    type Output = Seq2SeqLMOutput;

    fn forward(&self, input: T5Input) -> Result<Seq2SeqLMOutput> {
        let encoder_states = self.encoder_states(&input)?;
        let decoder_input_ids = match (input.decoder_input_ids, &input.labels) {
            (Some(ids), _) => ids,
            (None, Some(labels)) => self.shifted(labels)?,
            (None, None) => return Err(missing("`decoder_input_ids` or `labels`")),
        };
        let mut hidden = self.decoder.call(T5StackInput {
            input_ids: decoder_input_ids,
            attention_mask: input.decoder_attention_mask,
            encoder_states: Some(encoder_states.shallow_clone()),
            encoder_attention_mask: input.attention_mask,
            cache: input.cache,
        })?;
        if self.config.scale_decoder_outputs() {
            hidden = hidden.f_mul_scalar((self.config.d_model as f64).powf(-0.5))?;
        }
        let logits = self.lm_head.call(hidden)?;
        let loss = input
            .labels
            .map(|labels| cross_entropy(&logits, &labels))
            .transpose()?;
        Ok(Seq2SeqLMOutput {
            loss,
            logits,
            encoder_last_hidden_state: encoder_states,
        })
    }
}

fn missing(expected: &str) -> Error {
    Error::Argument {
        operation: "T5ForConditionalGeneration",
        expected: expected.to_owned(),
        found: "neither".to_owned(),
    }
}
