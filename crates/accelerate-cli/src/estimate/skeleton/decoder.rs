//! What decoders with rotary positions have in common: Llama and those that came after it.

use accelerate_formats::Dtype;

use super::{Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, linear, scale_norm},
};

/// The numbers that all of them have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoder {
    /// How the classes begin.
    pub(super) prefix: &'static str,
    pub(super) hidden: u64,
    pub(super) intermediate: u64,
    pub(super) layers: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) head_dim: u64,
    pub(super) vocabulary: u64,
    pub(super) tied: bool,
}

/// What a family takes where its configuration says nothing.
pub(super) struct Defaults {
    pub(super) hidden: u64,
    pub(super) intermediate: u64,
    pub(super) layers: u64,
    pub(super) heads: u64,
    /// As many as heads where there is none.
    pub(super) kv_heads: Option<u64>,
    /// The hidden size is shared out over the heads where there is none.
    pub(super) head_dim: Option<u64>,
    pub(super) vocabulary: u64,
    pub(super) tied: bool,
}

impl Decoder {
    pub(super) fn read(config: &Config, prefix: &'static str, defaults: &Defaults) -> Result<Self> {
        let hidden = config.size("hidden_size", defaults.hidden)?;
        let heads = config.size("num_attention_heads", defaults.heads)?;
        let head_dim = defaults.head_dim.unwrap_or(hidden / heads);
        let kv_heads = defaults.kv_heads.unwrap_or(heads);
        Ok(Self {
            prefix,
            hidden,
            heads,
            intermediate: config.size("intermediate_size", defaults.intermediate)?,
            layers: config.layers("num_hidden_layers", defaults.layers)?,
            kv_heads: config.size("num_key_value_heads", kv_heads)?,
            head_dim: config.size("head_dim", head_dim)?,
            vocabulary: config.size("vocab_size", defaults.vocabulary)?,
            tied: config.flag("tie_word_embeddings", defaults.tied)?,
        })
    }

    pub(super) fn class(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn rms_norm(&self, size: u64) -> Module {
        scale_norm(self.class("RMSNorm"), size)
    }

    /// The four projections; `output` names the last one.
    pub(super) fn attention(&self, inputs: Bias, output: (&'static str, Bias)) -> Module {
        let queries = self.heads * self.head_dim;
        let keys = self.kv_heads * self.head_dim;
        let (name, bias) = output;
        Module::new(self.class("Attention"))
            .child("q_proj", linear(self.hidden, queries, inputs))
            .child("k_proj", linear(self.hidden, keys, inputs))
            .child("v_proj", linear(self.hidden, keys, inputs))
            .child(name, linear(queries, self.hidden, bias))
    }

    pub(super) fn gated_mlp(&self, bias: Bias) -> Module {
        Module::new(self.class("MLP"))
            .child("gate_proj", linear(self.hidden, self.intermediate, bias))
            .child("up_proj", linear(self.hidden, self.intermediate, bias))
            .child("down_proj", linear(self.intermediate, self.hidden, bias))
    }

    /// The frequencies of `dims` rotated dimensions, kept twice.
    pub(super) fn rotary(&self, dims: u64) -> Module {
        let pairs = dims.div_ceil(2);
        Module::new(self.class("RotaryEmbedding"))
            .buffer("inv_freq", Dtype::F32, &[pairs])
            .buffer("original_inv_freq", Dtype::F32, &[pairs])
    }

    /// Embedding, layers, last norm and frequencies: the base of most of these models.
    pub(super) fn model(&self, words: Module, layer: impl Fn() -> Module) -> Module {
        Module::new(self.class("Model"))
            .child("embed_tokens", words)
            .child("layers", Module::list(self.layers, |_| layer()))
            .child("norm", self.rms_norm(self.hidden))
            .child("rotary_emb", self.rotary(self.head_dim))
    }

    /// Puts a head on a base. Some families call the base `transformer` when it answers questions.
    pub(super) fn with_head(
        &self,
        config: &Config,
        head: Head,
        base: Module,
        answering: &'static str,
    ) -> Result<Skeleton> {
        let under = |name: &'static str, base| Module::new("").child(name, base);
        let hidden = self.hidden;
        let root = match head {
            Head::CausalLm => {
                let words = linear(hidden, self.vocabulary, Bias::No);
                under("model", base).child("lm_head", words.tied("weight", self.tied))
            }
            Head::SequenceClassification => {
                under("model", base).child("score", linear(hidden, config.labels()?, Bias::No))
            }
            Head::TokenClassification => {
                under("model", base).child("score", linear(hidden, config.labels()?, Bias::Yes))
            }
            Head::QuestionAnswering => {
                under(answering, base).child("qa_outputs", linear(hidden, 2, Bias::Yes))
            }
            _ => base,
        };
        Ok(self.skeleton(root))
    }

    pub(super) fn skeleton(&self, root: Module) -> Skeleton {
        let no_split = vec![self.class("DecoderLayer").into()];
        Skeleton { root, no_split }
    }
}

/// The part of a head's dimensions that is rotated.
pub(super) fn rotated(
    config: &Config,
    head_dim: u64,
    old_key: &'static str,
    default: f64,
) -> Result<u64> {
    let share = config.share("rope_parameters", "partial_rotary_factor", old_key)?;
    Ok((head_dim as f64 * share.unwrap_or(default)) as u64)
}
