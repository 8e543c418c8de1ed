//! GPT-NeoX and Pythia.

use super::{
    Family, Head, Skeleton,
    decoder::{Decoder, Defaults, rotated},
};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, layer_norm, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "gpt_neox",
    classes: &[
        ("GPTNeoXModel", Head::Base),
        ("GPTNeoXForCausalLM", Head::CausalLm),
        (
            "GPTNeoXForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("GPTNeoXForTokenClassification", Head::TokenClassification),
        ("GPTNeoXForQuestionAnswering", Head::QuestionAnswering),
    ],
    build,
};

const DEFAULTS: Defaults = Defaults {
    hidden: 6144,
    intermediate: 24576,
    layers: 44,
    heads: 64,
    kv_heads: None,
    head_dim: None,
    vocabulary: 50432,
    tied: false,
};

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let decoder = Decoder::read(config, "GPTNeoX", &DEFAULTS)?;
    let bias = Bias::when(config.flag("attention_bias", true)?);
    let (hidden, vocabulary) = (decoder.hidden, decoder.vocabulary);
    let dims = rotated(config, decoder.head_dim, "rotary_pct", 0.25)?;
    let layers = Module::list(decoder.layers, |_| layer(&decoder, bias));
    let model = Module::new("GPTNeoXModel")
        .child("embed_in", embedding(vocabulary, hidden))
        .child("layers", layers)
        .child("final_layer_norm", layer_norm(hidden))
        .child("rotary_emb", decoder.rotary(dims));

    let under = |model| Module::new("").child("gpt_neox", model);
    let root = match head {
        Head::CausalLm => {
            let words = linear(hidden, vocabulary, Bias::No).tied("weight", decoder.tied);
            under(model).child("lm_head", words)
        }
        Head::SequenceClassification => {
            under(model).child("score", linear(hidden, config.labels()?, Bias::No))
        }
        Head::TokenClassification => {
            under(model).child("classifier", linear(hidden, config.labels()?, Bias::Yes))
        }
        Head::QuestionAnswering => under(model).child("qa_outputs", linear(hidden, 2, Bias::Yes)),
        _ => model,
    };
    let no_split = vec!["GPTNeoXLayer".into()];
    Ok(Skeleton { root, no_split })
}

fn layer(decoder: &Decoder, bias: Bias) -> Module {
    let (hidden, wide) = (decoder.hidden, decoder.intermediate);
    let attention = Module::new("GPTNeoXAttention")
        .child("query_key_value", linear(hidden, 3 * hidden, bias))
        .child("dense", linear(hidden, hidden, bias));
    let mlp = Module::new("GPTNeoXMLP")
        .child("dense_h_to_4h", linear(hidden, wide, Bias::Yes))
        .child("dense_4h_to_h", linear(wide, hidden, Bias::Yes));
    Module::new("GPTNeoXLayer")
        .child("input_layernorm", layer_norm(hidden))
        .child("post_attention_layernorm", layer_norm(hidden))
        .child("attention", attention)
        .child("mlp", mlp)
}
