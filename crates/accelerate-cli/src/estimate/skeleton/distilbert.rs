//! DistilBERT. It names no classes that belong together: layers are the innermost modules.

use accelerate_formats::Dtype;

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, layer_norm, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "distilbert",
    classes: &[
        ("DistilBertModel", Head::Base),
        ("DistilBertForMaskedLM", Head::MaskedLm),
        (
            "DistilBertForSequenceClassification",
            Head::SequenceClassification,
        ),
        (
            "DistilBertForTokenClassification",
            Head::TokenClassification,
        ),
        ("DistilBertForQuestionAnswering", Head::QuestionAnswering),
        ("DistilBertForMultipleChoice", Head::MultipleChoice),
    ],
    build,
};

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let dim = config.size_by(["dim", "hidden_size"], 768)?;
    let wide = config.size("hidden_dim", 3072)?;
    let layers = config.layers_by(["n_layers", "num_hidden_layers"], 6)?;
    let vocabulary = config.size("vocab_size", 30522)?;
    let positions = config.size("max_position_embeddings", 512)?;
    let tied = config.flag("tie_word_embeddings", true)?;

    let embeddings = Module::new("Embeddings")
        .buffer("position_ids", Dtype::I64, &[1, positions])
        .child("word_embeddings", embedding(vocabulary, dim))
        .child("position_embeddings", embedding(positions, dim))
        .child("LayerNorm", layer_norm(dim));
    let blocks = Module::list(layers, |_| block(dim, wide));
    let model = Module::new("DistilBertModel")
        .child("embeddings", embeddings)
        .child(
            "transformer",
            Module::new("Transformer").child("layer", blocks),
        );

    let under = |model| Module::new("").child("distilbert", model);
    let square = || linear(dim, dim, Bias::Yes);
    let root = match head {
        Head::MaskedLm => under(model)
            .child("vocab_transform", square())
            .child("vocab_layer_norm", layer_norm(dim))
            .child(
                "vocab_projector",
                linear(dim, vocabulary, Bias::Yes).tied("weight", tied),
            ),
        Head::SequenceClassification => under(model)
            .child("pre_classifier", square())
            .child("classifier", linear(dim, config.labels()?, Bias::Yes)),
        Head::MultipleChoice => under(model)
            .child("pre_classifier", square())
            .child("classifier", linear(dim, 1, Bias::Yes)),
        Head::TokenClassification => {
            under(model).child("classifier", linear(dim, config.labels()?, Bias::Yes))
        }
        Head::QuestionAnswering => under(model).child("qa_outputs", linear(dim, 2, Bias::Yes)),
        _ => model,
    };
    let no_split = Vec::new();
    Ok(Skeleton { root, no_split })
}

fn block(dim: u64, wide: u64) -> Module {
    let names = ["q_lin", "k_lin", "v_lin", "out_lin"];
    let attention = Module::new("DistilBertSelfAttention");
    let attention = names.into_iter().fold(attention, |attention, name| {
        attention.child(name, linear(dim, dim, Bias::Yes))
    });
    let mlp = Module::new("FFN")
        .child("lin1", linear(dim, wide, Bias::Yes))
        .child("lin2", linear(wide, dim, Bias::Yes));
    Module::new("TransformerBlock")
        .child("attention", attention)
        .child("sa_layer_norm", layer_norm(dim))
        .child("ffn", mlp)
        .child("output_layer_norm", layer_norm(dim))
}
