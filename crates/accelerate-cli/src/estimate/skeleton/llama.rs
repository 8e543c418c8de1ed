//! Llama, Mistral, Qwen2 and Qwen3: one shape, other biases and norms.

use super::{
    Family, Head, Skeleton,
    decoder::{Decoder, Defaults},
};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding},
};

pub(super) const LLAMA: Family = Family {
    model_type: "llama",
    classes: &[
        ("LlamaModel", Head::Base),
        ("LlamaForCausalLM", Head::CausalLm),
        (
            "LlamaForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("LlamaForTokenClassification", Head::TokenClassification),
        ("LlamaForQuestionAnswering", Head::QuestionAnswering),
    ],
    build: |config, head| {
        let decoder = Decoder::read(config, "Llama", &DEFAULTS)?;
        let bias = Bias::when(config.flag("attention_bias", false)?);
        let mlp_bias = Bias::when(config.flag("mlp_bias", false)?);
        let attention = || decoder.attention(bias, ("o_proj", bias));
        build(config, head, &decoder, "transformer", || {
            layer(&decoder, attention(), decoder.gated_mlp(mlp_bias))
        })
    },
};

pub(super) const MISTRAL: Family = Family {
    model_type: "mistral",
    classes: &[
        ("MistralModel", Head::Base),
        ("MistralForCausalLM", Head::CausalLm),
        (
            "MistralForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("MistralForTokenClassification", Head::TokenClassification),
        ("MistralForQuestionAnswering", Head::QuestionAnswering),
    ],
    build: |config, head| {
        let defaults = Defaults {
            intermediate: 14336,
            kv_heads: Some(8),
            ..DEFAULTS
        };
        let decoder = Decoder::read(config, "Mistral", &defaults)?;
        let attention = || decoder.attention(Bias::No, ("o_proj", Bias::No));
        build(config, head, &decoder, "model", || {
            layer(&decoder, attention(), decoder.gated_mlp(Bias::No))
        })
    },
};

pub(super) const QWEN2: Family = Family {
    model_type: "qwen2",
    classes: &[
        ("Qwen2Model", Head::Base),
        ("Qwen2ForCausalLM", Head::CausalLm),
        (
            "Qwen2ForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("Qwen2ForTokenClassification", Head::TokenClassification),
        ("Qwen2ForQuestionAnswering", Head::QuestionAnswering),
    ],
    build: |config, head| {
        let decoder = Decoder::read(config, "Qwen2", &QWEN)?;
        let attention = || decoder.attention(Bias::Yes, ("o_proj", Bias::No));
        build(config, head, &decoder, "transformer", || {
            layer(&decoder, attention(), decoder.gated_mlp(Bias::No))
        })
    },
};

pub(super) const QWEN3: Family = Family {
    model_type: "qwen3",
    classes: &[
        ("Qwen3Model", Head::Base),
        ("Qwen3ForCausalLM", Head::CausalLm),
        (
            "Qwen3ForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("Qwen3ForTokenClassification", Head::TokenClassification),
        ("Qwen3ForQuestionAnswering", Head::QuestionAnswering),
    ],
    build: |config, head| {
        let defaults = Defaults {
            head_dim: Some(128),
            ..QWEN
        };
        let decoder = Decoder::read(config, "Qwen3", &defaults)?;
        let bias = Bias::when(config.flag("attention_bias", false)?);
        let attention = || {
            let attention = decoder.attention(bias, ("o_proj", bias));
            let norm = || decoder.rms_norm(decoder.head_dim);
            attention.child("q_norm", norm()).child("k_norm", norm())
        };
        build(config, head, &decoder, "transformer", || {
            layer(&decoder, attention(), decoder.gated_mlp(Bias::No))
        })
    },
};

pub(super) const DEFAULTS: Defaults = Defaults {
    hidden: 4096,
    intermediate: 11008,
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    vocabulary: 32000,
    tied: false,
};

const QWEN: Defaults = Defaults {
    intermediate: 22016,
    kv_heads: Some(32),
    vocabulary: 151_936,
    ..DEFAULTS
};

fn build(
    config: &Config,
    head: Head,
    decoder: &Decoder,
    answering: &'static str,
    layer: impl Fn() -> Module,
) -> Result<Skeleton> {
    let words = embedding(decoder.vocabulary, decoder.hidden);
    decoder.with_head(config, head, decoder.model(words, layer), answering)
}

fn layer(decoder: &Decoder, attention: Module, mlp: Module) -> Module {
    let norm = || decoder.rms_norm(decoder.hidden);
    Module::new(decoder.class("DecoderLayer"))
        .child("self_attn", attention)
        .child("mlp", mlp)
        .child("input_layernorm", norm())
        .child("post_attention_layernorm", norm())
}
