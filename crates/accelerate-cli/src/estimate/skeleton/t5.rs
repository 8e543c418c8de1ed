//! T5 and mT5.

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, embedding, linear, scale_norm},
};

pub(super) const T5: Family = Family {
    model_type: "t5",
    classes: &[
        ("T5Model", Head::Base),
        ("T5EncoderModel", Head::Encoder),
        ("T5ForConditionalGeneration", Head::SequenceToSequence),
        ("T5ForSequenceClassification", Head::SequenceClassification),
        ("T5ForTokenClassification", Head::TokenClassification),
        ("T5ForQuestionAnswering", Head::QuestionAnswering),
    ],
    build: |config, head| {
        let t5 = T5Shape::read(config, "T5", [32128, 2048, 6, 8], "relu")?;
        build(config, head, &t5)
    },
};

pub(super) const MT5: Family = Family {
    model_type: "mt5",
    classes: &[
        ("MT5Model", Head::Base),
        ("MT5EncoderModel", Head::Encoder),
        ("MT5ForConditionalGeneration", Head::SequenceToSequence),
        ("MT5ForSequenceClassification", Head::SequenceClassification),
        ("MT5ForTokenClassification", Head::TokenClassification),
        ("MT5ForQuestionAnswering", Head::QuestionAnswering),
    ],
    build: |config, head| {
        let t5 = T5Shape::read(config, "MT5", [250_112, 1024, 8, 6], "gated-gelu")?;
        build(config, head, &t5)
    },
};

struct T5Shape {
    prefix: &'static str,
    hidden: u64,
    inner: u64,
    wide: u64,
    heads: u64,
    layers: u64,
    decoder_layers: u64,
    vocabulary: u64,
    buckets: u64,
    gated: bool,
    tied: bool,
}

impl T5Shape {
    fn read(
        config: &Config,
        prefix: &'static str,
        [vocabulary, wide, layers, heads]: [u64; 4],
        activation: &str,
    ) -> Result<Self> {
        let layers = config.layers_by(["num_layers", "num_hidden_layers"], layers)?;
        let heads = config.size_by(["num_heads", "num_attention_heads"], heads)?;
        let activation = config.text("feed_forward_proj")?.unwrap_or(activation);
        Ok(Self {
            prefix,
            hidden: config.size_by(["d_model", "hidden_size"], 512)?,
            inner: heads * config.size_by(["d_kv", "head_dim"], 64)?,
            wide: config.size("d_ff", wide)?,
            heads,
            layers,
            decoder_layers: config.layers("num_decoder_layers", layers)?,
            vocabulary: config.size("vocab_size", vocabulary)?,
            buckets: config.size("relative_attention_num_buckets", 32)?,
            gated: activation.starts_with("gated-"),
            tied: config.flag("tie_word_embeddings", true)?,
        })
    }

    fn class(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn words(&self) -> Module {
        embedding(self.vocabulary, self.hidden)
    }

    fn norm(&self) -> Module {
        scale_norm(self.class("LayerNorm"), self.hidden)
    }

    /// `shared` and the encoder; the decoder too, unless only the encoder is wanted.
    fn model(&self, root: Module, decoder: bool) -> Module {
        root.child("shared", self.words())
            .child("encoder", self.stack(self.layers, false))
            .child_if(decoder, "decoder", || self.stack(self.decoder_layers, true))
    }

    fn stack(&self, layers: u64, decoder: bool) -> Module {
        Module::new(self.class("Stack"))
            .child("embed_tokens", self.words().tied("weight", true))
            .child(
                "block",
                Module::list(layers, |i| self.block(i == 0, decoder)),
            )
            .child("final_layer_norm", self.norm())
    }

    /// Only the first block of a stack holds the biases of relative positions.
    fn block(&self, first: bool, decoder: bool) -> Module {
        let normed = |class: &str, name: &'static str, inner| {
            let layer = Module::new(self.class(class)).child(name, inner);
            layer.child("layer_norm", self.norm())
        };
        let mut layers = vec![normed(
            "LayerSelfAttention",
            "SelfAttention",
            self.attention(first),
        )];
        if decoder {
            let attention = self.attention(false);
            layers.push(normed("LayerCrossAttention", "EncDecAttention", attention));
        }
        layers.push(normed("LayerFF", "DenseReluDense", self.mlp()));
        let mut list = Module::sequence(layers);
        list.class = "ModuleList".into();
        Module::new(self.class("Block")).child("layer", list)
    }

    fn attention(&self, biases: bool) -> Module {
        Module::new(self.class("Attention"))
            .child("q", linear(self.hidden, self.inner, Bias::No))
            .child("k", linear(self.hidden, self.inner, Bias::No))
            .child("v", linear(self.hidden, self.inner, Bias::No))
            .child("o", linear(self.inner, self.hidden, Bias::No))
            .child_if(biases, "relative_attention_bias", || {
                embedding(self.buckets, self.heads)
            })
    }

    fn mlp(&self) -> Module {
        let up = || linear(self.hidden, self.wide, Bias::No);
        let down = linear(self.wide, self.hidden, Bias::No);
        if self.gated {
            let mlp = Module::new(self.class("DenseGatedActDense"));
            let mlp = mlp.child("wi_0", up()).child("wi_1", up());
            return mlp.child("wo", down);
        }
        let mlp = Module::new(self.class("DenseActDense"));
        mlp.child("wi", up()).child("wo", down)
    }
}

fn build(config: &Config, head: Head, t5: &T5Shape) -> Result<Skeleton> {
    let hidden = t5.hidden;
    let root = || Module::new("");
    let root = match head {
        Head::Encoder => t5.model(root(), false),
        Head::SequenceToSequence => {
            let words = linear(hidden, t5.vocabulary, Bias::No).tied("weight", t5.tied);
            t5.model(root(), true).child("lm_head", words)
        }
        Head::SequenceClassification => {
            let model = t5.model(Module::new(t5.class("Model")), true);
            let classifier = Module::new(t5.class("ClassificationHead"))
                .child("dense", linear(hidden, hidden, Bias::Yes))
                .child("out_proj", linear(hidden, config.labels()?, Bias::Yes));
            root()
                .child("transformer", model)
                .child("classification_head", classifier)
        }
        Head::TokenClassification => {
            let model = t5.model(Module::new(t5.class("EncoderModel")), false);
            let classifier = linear(hidden, config.labels()?, Bias::Yes);
            root()
                .child("transformer", model)
                .child("classifier", classifier)
        }
        Head::QuestionAnswering => {
            let outputs = linear(hidden, config.labels()?, Bias::Yes);
            t5.model(root(), true).child("qa_outputs", outputs)
        }
        _ => t5.model(root(), true),
    };
    let no_split = vec![t5.class("Block").into()];
    Ok(Skeleton { root, no_split })
}
