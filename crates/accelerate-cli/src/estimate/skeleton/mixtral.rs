//! Mixtral: Mistral with several experts in each layer.

use super::{
    Family, Head, Skeleton,
    decoder::{Decoder, Defaults},
    llama,
};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding},
};

pub(super) const FAMILY: Family = Family {
    model_type: "mixtral",
    classes: &[
        ("MixtralModel", Head::Base),
        ("MixtralForCausalLM", Head::CausalLm),
        (
            "MixtralForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("MixtralForTokenClassification", Head::TokenClassification),
        ("MixtralForQuestionAnswering", Head::QuestionAnswering),
    ],
    build,
};

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let defaults = Defaults {
        intermediate: 14336,
        kv_heads: Some(8),
        ..llama::DEFAULTS
    };
    let decoder = Decoder::read(config, "Mixtral", &defaults)?;
    let experts = config.size_by(["num_local_experts", "num_experts"], 8)?;
    let words = embedding(decoder.vocabulary, decoder.hidden);
    let model = decoder.model(words, || layer(&decoder, experts));
    decoder.with_head(config, head, model, "model")
}

fn layer(decoder: &Decoder, experts: u64) -> Module {
    let (hidden, wide) = (decoder.hidden, decoder.intermediate);
    let router = Module::new("MixtralTopKRouter").parameter("weight", &[experts, hidden]);
    let all = Module::new("MixtralExperts")
        .parameter("gate_up_proj", &[experts, 2 * wide, hidden])
        .parameter("down_proj", &[experts, hidden, wide]);
    let mlp = Module::new("MixtralSparseMoeBlock")
        .child("gate", router)
        .child("experts", all);
    let norm = || decoder.rms_norm(hidden);
    Module::new("MixtralDecoderLayer")
        .child(
            "self_attn",
            decoder.attention(Bias::No, ("o_proj", Bias::No)),
        )
        .child("mlp", mlp)
        .child("input_layernorm", norm())
        .child("post_attention_layernorm", norm())
}
