//! RoBERTa and the models that differ from it only in their vocabulary.

use super::{Family, Head, Skeleton, bert::Bert};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, layer_norm, linear},
};

pub(super) const ROBERTA: Family = Family {
    model_type: "roberta",
    classes: &[
        ("RobertaModel", Head::Base),
        ("RobertaForMaskedLM", Head::MaskedLm),
        ("RobertaForCausalLM", Head::CausalLm),
        (
            "RobertaForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("RobertaForTokenClassification", Head::TokenClassification),
        ("RobertaForQuestionAnswering", Head::QuestionAnswering),
        ("RobertaForMultipleChoice", Head::MultipleChoice),
    ],
    build: |config, head| build(config, head, "Roberta", 50265),
};

pub(super) const XLM_ROBERTA: Family = Family {
    model_type: "xlm-roberta",
    classes: &[
        ("XLMRobertaModel", Head::Base),
        ("XLMRobertaForMaskedLM", Head::MaskedLm),
        ("XLMRobertaForCausalLM", Head::CausalLm),
        (
            "XLMRobertaForSequenceClassification",
            Head::SequenceClassification,
        ),
        (
            "XLMRobertaForTokenClassification",
            Head::TokenClassification,
        ),
        ("XLMRobertaForQuestionAnswering", Head::QuestionAnswering),
        ("XLMRobertaForMultipleChoice", Head::MultipleChoice),
    ],
    build: |config, head| build(config, head, "XLMRoberta", 30522),
};

pub(super) const CAMEMBERT: Family = Family {
    model_type: "camembert",
    classes: &[
        ("CamembertModel", Head::Base),
        ("CamembertForMaskedLM", Head::MaskedLm),
        ("CamembertForCausalLM", Head::CausalLm),
        (
            "CamembertForSequenceClassification",
            Head::SequenceClassification,
        ),
        ("CamembertForTokenClassification", Head::TokenClassification),
        ("CamembertForQuestionAnswering", Head::QuestionAnswering),
        ("CamembertForMultipleChoice", Head::MultipleChoice),
    ],
    build: |config, head| build(config, head, "Camembert", 30522),
};

fn build(config: &Config, head: Head, prefix: &'static str, vocabulary: u64) -> Result<Skeleton> {
    let bert = Bert::read(config, prefix, vocabulary)?;
    let model = bert.model(matches!(head, Head::Base | Head::MultipleChoice));
    if head == Head::Base {
        return Ok(bert.skeleton(model));
    }
    let root = Module::new("").child("roberta", model);
    let hidden = bert.hidden;
    let root = match head {
        Head::MaskedLm | Head::CausalLm => root.child("lm_head", words(&bert)),
        Head::SequenceClassification => {
            let classifier = Module::new(bert.class("ClassificationHead"))
                .child("dense", linear(hidden, hidden, Bias::Yes))
                .child("out_proj", linear(hidden, config.labels()?, Bias::Yes));
            root.child("classifier", classifier)
        }
        Head::QuestionAnswering => root.child("qa_outputs", linear(hidden, 2, Bias::Yes)),
        Head::MultipleChoice => root.child("classifier", linear(hidden, 1, Bias::Yes)),
        _ => root.child("classifier", linear(hidden, config.labels()?, Bias::Yes)),
    };
    Ok(bert.skeleton(root))
}

fn words(bert: &Bert) -> Module {
    Module::new(bert.class("LMHead"))
        .parameter("bias", &[bert.vocabulary])
        .child("dense", linear(bert.hidden, bert.hidden, Bias::Yes))
        .child("layer_norm", layer_norm(bert.hidden))
        .child("decoder", bert.decoder())
}
