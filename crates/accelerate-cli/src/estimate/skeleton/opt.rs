//! OPT.

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, layer_norm, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "opt",
    classes: &[
        ("OPTModel", Head::Base),
        ("OPTForCausalLM", Head::CausalLm),
        ("OPTForSequenceClassification", Head::SequenceClassification),
        ("OPTForQuestionAnswering", Head::QuestionAnswering),
    ],
    build,
};

/// Positions are counted from 2.
const POSITION_OFFSET: u64 = 2;

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let hidden = config.size("hidden_size", 768)?;
    let words = config.size("word_embed_proj_dim", hidden)?;
    let vocabulary = config.size("vocab_size", 50272)?;
    let model = Module::new("OPTModel").child("decoder", decoder(config, hidden, words)?);
    let under = |model| Module::new("").child("model", model);
    let root = match head {
        Head::CausalLm => {
            let tied = config.flag("tie_word_embeddings", true)?;
            let lm_head = linear(words, vocabulary, Bias::No).tied("weight", tied);
            under(model).child("lm_head", lm_head)
        }
        Head::SequenceClassification => {
            under(model).child("score", linear(words, config.labels()?, Bias::No))
        }
        Head::QuestionAnswering => under(model).child("qa_outputs", linear(words, 2, Bias::Yes)),
        _ => model,
    };
    let no_split = vec!["OPTDecoderLayer".into()];
    Ok(Skeleton { root, no_split })
}

fn decoder(config: &Config, hidden: u64, words: u64) -> Result<Module> {
    let vocabulary = config.size("vocab_size", 50272)?;
    let wide = config.size("ffn_dim", 3072)?;
    let layers = config.layers("num_hidden_layers", 12)?;
    let positions = config.size("max_position_embeddings", 2048)? + POSITION_OFFSET;
    let bias = Bias::when(config.flag("enable_bias", true)?);
    let affine = config.flag("layer_norm_elementwise_affine", true)?;
    let last_norm = config.flag("do_layer_norm_before", true)?
        && !config.flag("_remove_final_layer_norm", false)?;
    let positions = Module {
        class: "OPTLearnedPositionalEmbedding".into(),
        ..embedding(positions, hidden)
    };
    let norm = move || norm(hidden, affine);
    Ok(Module::new("OPTDecoder")
        .child("embed_tokens", embedding(vocabulary, words))
        .child("embed_positions", positions)
        .child_if(words != hidden, "project_out", || {
            linear(hidden, words, Bias::No)
        })
        .child_if(words != hidden, "project_in", || {
            linear(words, hidden, Bias::No)
        })
        .child_if(last_norm, "final_layer_norm", norm)
        .child(
            "layers",
            Module::list(layers, |_| layer(hidden, wide, bias, norm)),
        ))
}

fn layer(hidden: u64, wide: u64, bias: Bias, norm: impl Fn() -> Module) -> Module {
    let names = ["k_proj", "v_proj", "q_proj", "out_proj"];
    let attention = Module::new("OPTAttention");
    let attention = names.into_iter().fold(attention, |attention, name| {
        attention.child(name, linear(hidden, hidden, bias))
    });
    Module::new("OPTDecoderLayer")
        .child("self_attn", attention)
        .child("self_attn_layer_norm", norm())
        .child("fc1", linear(hidden, wide, bias))
        .child("fc2", linear(wide, hidden, bias))
        .child("final_layer_norm", norm())
}

fn norm(size: u64, affine: bool) -> Module {
    if affine {
        layer_norm(size)
    } else {
        Module::new("LayerNorm")
    }
}
