//! Phi, with one norm before attention and MLP alike, and Phi-3, with merged projections.

use super::{
    Family, Head, Skeleton,
    decoder::{Decoder, Defaults, rotated},
};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, layer_norm, linear},
};

pub(super) const PHI: Family = Family {
    model_type: "phi",
    classes: &[
        ("PhiModel", Head::Base),
        ("PhiForCausalLM", Head::CausalLm),
        ("PhiForSequenceClassification", Head::SequenceClassification),
        ("PhiForTokenClassification", Head::TokenClassification),
    ],
    build: phi,
};

pub(super) const PHI3: Family = Family {
    model_type: "phi3",
    classes: &[
        ("Phi3Model", Head::Base),
        ("Phi3ForCausalLM", Head::CausalLm),
        (
            "Phi3ForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("Phi3ForTokenClassification", Head::TokenClassification),
    ],
    build: phi3,
};

const DEFAULTS: Defaults = Defaults {
    hidden: 2048,
    intermediate: 8192,
    layers: 24,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    vocabulary: 51200,
    tied: false,
};

fn phi(config: &Config, head: Head) -> Result<Skeleton> {
    let decoder = Decoder::read(config, "Phi", &DEFAULTS)?;
    let normed = config.flag("qk_layernorm", false)?;
    let dims = rotated(config, decoder.head_dim, "partial_rotary_factor", 0.5)?;
    let layers = Module::list(decoder.layers, |_| phi_layer(&decoder, normed));
    let model = Module::new("PhiModel")
        .child(
            "embed_tokens",
            embedding(decoder.vocabulary, decoder.hidden),
        )
        .child("layers", layers)
        .child("rotary_emb", decoder.rotary(dims))
        .child("final_layernorm", layer_norm(decoder.hidden));
    if head != Head::CausalLm {
        return decoder.with_head(config, head, model, "model");
    }
    let words = linear(decoder.hidden, decoder.vocabulary, Bias::Yes);
    let root = Module::new("").child("model", model);
    let root = root.child("lm_head", words.tied("weight", decoder.tied));
    Ok(decoder.skeleton(root))
}

fn phi_layer(decoder: &Decoder, normed: bool) -> Module {
    let attention = decoder.attention(Bias::Yes, ("dense", Bias::Yes));
    let norm = || layer_norm(decoder.hidden / decoder.heads);
    let attention =
        attention
            .child_if(normed, "q_layernorm", norm)
            .child_if(normed, "k_layernorm", norm);
    let mlp = Module::new("PhiMLP")
        .child(
            "fc1",
            linear(decoder.hidden, decoder.intermediate, Bias::Yes),
        )
        .child(
            "fc2",
            linear(decoder.intermediate, decoder.hidden, Bias::Yes),
        );
    Module::new("PhiDecoderLayer")
        .child("self_attn", attention)
        .child("mlp", mlp)
        .child("input_layernorm", layer_norm(decoder.hidden))
}

fn phi3(config: &Config, head: Head) -> Result<Skeleton> {
    let defaults = Defaults {
        hidden: 3072,
        layers: 32,
        vocabulary: 32064,
        ..DEFAULTS
    };
    let decoder = Decoder::read(config, "Phi3", &defaults)?;
    let dims = rotated(config, decoder.head_dim, "partial_rotary_factor", 1.0)?;
    let layers = Module::list(decoder.layers, |_| phi3_layer(&decoder));
    let model = Module::new("Phi3Model")
        .child(
            "embed_tokens",
            embedding(decoder.vocabulary, decoder.hidden),
        )
        .child("layers", layers)
        .child("norm", decoder.rms_norm(decoder.hidden))
        .child("rotary_emb", decoder.rotary(dims));
    decoder.with_head(config, head, model, "model")
}

fn phi3_layer(decoder: &Decoder) -> Module {
    let (hidden, wide) = (decoder.hidden, decoder.intermediate);
    let queries = decoder.heads * decoder.head_dim;
    let all = queries + 2 * decoder.kv_heads * decoder.head_dim;
    let attention = Module::new("Phi3Attention")
        .child("o_proj", linear(queries, hidden, Bias::No))
        .child("qkv_proj", linear(hidden, all, Bias::No));
    let mlp = Module::new("Phi3MLP")
        .child("gate_up_proj", linear(hidden, 2 * wide, Bias::No))
        .child("down_proj", linear(wide, hidden, Bias::No));
    Module::new("Phi3DecoderLayer")
        .child("self_attn", attention)
        .child("mlp", mlp)
        .child("input_layernorm", decoder.rms_norm(hidden))
        .child("post_attention_layernorm", decoder.rms_norm(hidden))
}
