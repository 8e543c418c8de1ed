//! GPT-2.

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, layer_norm, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "gpt2",
    classes: &[
        ("GPT2Model", Head::Base),
        ("GPT2LMHeadModel", Head::CausalLm),
        ("GPT2DoubleHeadsModel", Head::DoubleHeads),
        (
            "GPT2ForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("GPT2ForTokenClassification", Head::TokenClassification),
        ("GPT2ForQuestionAnswering", Head::QuestionAnswering),
    ],
    build,
};

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let dim = config.size_by(["n_embd", "hidden_size"], 768)?;
    let wide = config.size("n_inner", 4 * dim)?;
    let layers = config.layers_by(["n_layer", "num_hidden_layers"], 12)?;
    let vocabulary = config.size("vocab_size", 50257)?;
    let positions = config.size_by(["n_positions", "max_position_embeddings"], 1024)?;
    let cross_attention = config.flag("add_cross_attention", false)?;
    let tied = config.flag("tie_word_embeddings", true)?;

    let blocks = Module::list(layers, |_| block(dim, wide, cross_attention));
    let model = Module::new("GPT2Model")
        .child("wte", embedding(vocabulary, dim))
        .child("wpe", embedding(positions, dim))
        .child("h", blocks)
        .child("ln_f", layer_norm(dim));

    let under = |model| Module::new("").child("transformer", model);
    let words = || linear(dim, vocabulary, Bias::No).tied("weight", tied);
    let root = match head {
        Head::CausalLm => under(model).child("lm_head", words()),
        Head::DoubleHeads => {
            let choice = Module::new("GPT2SequenceSummary");
            let choice = choice.child("summary", linear(dim, 1, Bias::Yes));
            let root = under(model).child("lm_head", words());
            root.child("multiple_choice_head", choice)
        }
        Head::SequenceClassification => {
            under(model).child("score", linear(dim, config.labels()?, Bias::No))
        }
        Head::TokenClassification => {
            under(model).child("classifier", linear(dim, config.labels()?, Bias::Yes))
        }
        Head::QuestionAnswering => under(model).child("qa_outputs", linear(dim, 2, Bias::Yes)),
        _ => model,
    };
    let no_split = vec!["GPT2Block".into()];
    Ok(Skeleton { root, no_split })
}

fn block(dim: u64, wide: u64, cross_attention: bool) -> Module {
    let attention = Module::new("GPT2Attention")
        .child("c_attn", conv1d(dim, 3 * dim))
        .child("c_proj", conv1d(dim, dim));
    let block = Module::new("GPT2Block")
        .child("ln_1", layer_norm(dim))
        .child("attn", attention)
        .child("ln_2", layer_norm(dim));
    let mlp = Module::new("GPT2MLP")
        .child("c_fc", conv1d(dim, wide))
        .child("c_proj", conv1d(wide, dim));
    let block = if cross_attention {
        let cross = Module::new("GPT2Attention")
            .child("c_attn", conv1d(dim, 2 * dim))
            .child("q_attn", conv1d(dim, dim))
            .child("c_proj", conv1d(dim, dim));
        block
            .child("crossattention", cross)
            .child("ln_cross_attn", layer_norm(dim))
    } else {
        block
    };
    block.child("mlp", mlp)
}

/// A linear layer whose weight lies the other way round.
fn conv1d(inputs: u64, outputs: u64) -> Module {
    Module::new("Conv1D")
        .parameter("weight", &[inputs, outputs])
        .parameter("bias", &[outputs])
}
