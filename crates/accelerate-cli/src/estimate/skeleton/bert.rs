//! BERT, and what RoBERTa takes over from it.

use accelerate_formats::Dtype;

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, layer_norm, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "bert",
    classes: &[
        ("BertModel", Head::Base),
        ("BertForPreTraining", Head::PreTraining),
        ("BertForMaskedLM", Head::MaskedLm),
        ("BertLMHeadModel", Head::CausalLm),
        (
            "BertForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("BertForTokenClassification", Head::TokenClassification),
        ("BertForQuestionAnswering", Head::QuestionAnswering),
        ("BertForMultipleChoice", Head::MultipleChoice),
        ("BertForNextSentencePrediction", Head::NextSentence),
    ],
    build,
};

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let bert = Bert::read(config, "Bert", 30522)?;
    let without_pooler = [
        Head::MaskedLm,
        Head::CausalLm,
        Head::TokenClassification,
        Head::QuestionAnswering,
    ];
    let model = bert.model(!without_pooler.contains(&head));
    if head == Head::Base {
        return Ok(bert.skeleton(model));
    }
    let root = Module::new("").child("bert", model);
    let hidden = bert.hidden;
    let sentence_order = || linear(hidden, 2, Bias::Yes);
    let root = match head {
        Head::PreTraining => {
            let heads = Module::new("BertPreTrainingHeads");
            let heads = heads.child("predictions", bert.predictions());
            root.child("cls", heads.child("seq_relationship", sentence_order()))
        }
        Head::NextSentence => {
            let head = Module::new("BertOnlyNSPHead");
            root.child("cls", head.child("seq_relationship", sentence_order()))
        }
        Head::MaskedLm | Head::CausalLm => {
            let head = Module::new("BertOnlyMLMHead");
            root.child("cls", head.child("predictions", bert.predictions()))
        }
        Head::QuestionAnswering => root.child("qa_outputs", linear(hidden, 2, Bias::Yes)),
        Head::MultipleChoice => root.child("classifier", linear(hidden, 1, Bias::Yes)),
        _ => root.child("classifier", linear(hidden, config.labels()?, Bias::Yes)),
    };
    Ok(bert.skeleton(root))
}

/// The numbers of a configuration, and how the classes begin.
pub(super) struct Bert {
    prefix: &'static str,
    pub(super) hidden: u64,
    pub(super) vocabulary: u64,
    pub(super) tied: bool,
    intermediate: u64,
    layers: u64,
    positions: u64,
    token_types: u64,
    cross_attention: bool,
}

impl Bert {
    pub(super) fn read(config: &Config, prefix: &'static str, vocabulary: u64) -> Result<Self> {
        Ok(Self {
            prefix,
            hidden: config.size("hidden_size", 768)?,
            vocabulary: config.size("vocab_size", vocabulary)?,
            tied: config.flag("tie_word_embeddings", true)?,
            intermediate: config.size("intermediate_size", 3072)?,
            layers: config.layers("num_hidden_layers", 12)?,
            positions: config.size("max_position_embeddings", 512)?,
            token_types: config.size("type_vocab_size", 2)?,
            cross_attention: config.flag("add_cross_attention", false)?,
        })
    }

    pub(super) fn skeleton(&self, root: Module) -> Skeleton {
        let no_split = ["Embeddings", "Layer"].map(|class| self.class(class).into());
        let no_split = no_split.to_vec();
        Skeleton { root, no_split }
    }

    pub(super) fn class(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn model(&self, pooler: bool) -> Module {
        let encoder = Module::new(self.class("Encoder"));
        let layers = Module::list(self.layers, |_| self.layer());
        Module::new(self.class("Model"))
            .child("embeddings", self.embeddings())
            .child("encoder", encoder.child("layer", layers))
            .child_if(pooler, "pooler", || {
                let pooler = Module::new(self.class("Pooler"));
                pooler.child("dense", linear(self.hidden, self.hidden, Bias::Yes))
            })
    }

    fn embeddings(&self) -> Module {
        Module::new(self.class("Embeddings"))
            .buffer("position_ids", Dtype::I64, &[1, self.positions])
            .buffer("token_type_ids", Dtype::I64, &[1, self.positions])
            .child("word_embeddings", embedding(self.vocabulary, self.hidden))
            .child(
                "position_embeddings",
                embedding(self.positions, self.hidden),
            )
            .child(
                "token_type_embeddings",
                embedding(self.token_types, self.hidden),
            )
            .child("LayerNorm", layer_norm(self.hidden))
    }

    fn layer(&self) -> Module {
        let wide = Module::new(self.class("Intermediate"));
        let wide = wide.child("dense", linear(self.hidden, self.intermediate, Bias::Yes));
        let output = self.output("Output", self.intermediate);
        Module::new(self.class("Layer"))
            .child("attention", self.attention("SelfAttention"))
            .child_if(self.cross_attention, "crossattention", || {
                self.attention("CrossAttention")
            })
            .child("intermediate", wide)
            .child("output", output)
    }

    fn attention(&self, class: &str) -> Module {
        let square = || linear(self.hidden, self.hidden, Bias::Yes);
        let inner = Module::new(self.class(class))
            .child("query", square())
            .child("key", square())
            .child("value", square());
        Module::new(self.class("Attention"))
            .child("self", inner)
            .child("output", self.output("SelfOutput", self.hidden))
    }

    fn output(&self, class: &str, inputs: u64) -> Module {
        Module::new(self.class(class))
            .child("dense", linear(inputs, self.hidden, Bias::Yes))
            .child("LayerNorm", layer_norm(self.hidden))
    }

    /// From a hidden state to a word. Its two biases are one tensor.
    fn predictions(&self) -> Module {
        let transform = Module::new(self.class("PredictionHeadTransform"))
            .child("dense", linear(self.hidden, self.hidden, Bias::Yes))
            .child("LayerNorm", layer_norm(self.hidden));
        Module::new(self.class("LMPredictionHead"))
            .parameter("bias", &[self.vocabulary])
            .child("transform", transform)
            .child("decoder", self.decoder())
    }

    pub(super) fn decoder(&self) -> Module {
        linear(self.hidden, self.vocabulary, Bias::Yes)
            .tied("weight", self.tied)
            .tied("bias", true)
    }
}
