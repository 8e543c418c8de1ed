//! Gemma and Gemma 2.

use accelerate_formats::Dtype;

use super::{
    Family, Head, Skeleton,
    decoder::{Decoder, Defaults},
};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding},
};

pub(super) const GEMMA: Family = Family {
    model_type: "gemma",
    classes: &[
        ("GemmaModel", Head::Base),
        ("GemmaForCausalLM", Head::CausalLm),
        (
            "GemmaForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("GemmaForTokenClassification", Head::TokenClassification),
    ],
    build: |config, head| {
        let defaults = Defaults {
            hidden: 3072,
            intermediate: 24576,
            layers: 28,
            heads: 16,
            kv_heads: Some(16),
            ..DEFAULTS
        };
        let decoder = Decoder::read(config, "Gemma", &defaults)?;
        build(
            config,
            head,
            &decoder,
            &["input_layernorm", "post_attention_layernorm"],
        )
    },
};

pub(super) const GEMMA2: Family = Family {
    model_type: "gemma2",
    classes: &[
        ("Gemma2Model", Head::Base),
        ("Gemma2ForCausalLM", Head::CausalLm),
        (
            "Gemma2ForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("Gemma2ForTokenClassification", Head::TokenClassification),
    ],
    build: |config, head| {
        let decoder = Decoder::read(config, "Gemma2", &DEFAULTS)?;
        let norms = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ];
        build(config, head, &decoder, &norms)
    },
};

/// Those of Gemma 2.
const DEFAULTS: Defaults = Defaults {
    hidden: 2304,
    intermediate: 9216,
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    head_dim: Some(256),
    vocabulary: 256_000,
    tied: true,
};

fn build(
    config: &Config,
    head: Head,
    decoder: &Decoder,
    norms: &[&'static str],
) -> Result<Skeleton> {
    let bias = Bias::when(config.flag("attention_bias", false)?);
    let words = Module {
        class: decoder.class("TextScaledWordEmbedding").into(),
        ..embedding(decoder.vocabulary, decoder.hidden)
    };
    let words = words.buffer("embed_scale", Dtype::F32, &[]);
    let model = decoder.model(words, || {
        let layer = Module::new(decoder.class("DecoderLayer"))
            .child("self_attn", decoder.attention(bias, ("o_proj", bias)))
            .child("mlp", decoder.gated_mlp(Bias::No));
        let norm = |layer: Module, name| layer.child(name, decoder.rms_norm(decoder.hidden));
        norms.iter().copied().fold(layer, norm)
    });
    decoder.with_head(config, head, model, "model")
}
