use accelerate::nn::Forward;
use accelerate_models::PretrainedModel;
use accelerate_models::bert::{
    BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertForTokenClassification,
    BertInput, BertPreTrainingInput,
};
use serde_json::Value;
use tch::Tensor;

use crate::recorded::{assert_first_step, assert_near, assert_parameters, input, model, recording};

fn batch(case: &Value) -> BertInput {
    BertInput {
        input_ids: input(case, "input_ids").unwrap(),
        attention_mask: input(case, "attention_mask"),
        token_type_ids: input(case, "token_type_ids"),
        labels: input(case, "labels"),
    }
}

/// Checks one model whose logits and loss `run` gives.
fn check<M: PretrainedModel>(name: &str, run: impl Fn(&M, &Value) -> (Tensor, Tensor)) {
    let recording = recording();
    let case = &recording["cases"][name];
    let model: M = model(case, recording["spread"].as_f64().unwrap());
    assert_parameters(&model, case);
    let (logits, loss) = run(&model, case);
    assert_near("logits", &logits, &case["logits"]);
    assert_first_step(&model, &loss, case);
}

#[test]
fn sequence_classification_is_that_of_transformers() {
    check::<BertForSequenceClassification>("BertForSequenceClassification", |model, case| {
        let output = model.call(batch(case)).unwrap();
        (output.logits, output.loss.unwrap())
    });
}

#[test]
fn token_classification_is_that_of_transformers() {
    check::<BertForTokenClassification>("BertForTokenClassification", |model, case| {
        let output = model.call(batch(case)).unwrap();
        (output.logits, output.loss.unwrap())
    });
}

#[test]
fn masked_tokens_are_predicted_as_by_transformers() {
    for name in ["BertForMaskedLM", "BertForMaskedLM untied"] {
        check::<BertForMaskedLM>(name, |model, case| {
            let output = model.call(batch(case)).unwrap();
            (output.logits, output.loss.unwrap())
        });
    }
}

#[test]
fn pre_training_is_that_of_transformers() {
    check::<BertForPreTraining>("BertForPreTraining", |model, case| {
        let BertInput {
            input_ids,
            attention_mask,
            token_type_ids,
            labels,
        } = batch(case);
        let output = model
            .call(BertPreTrainingInput {
                input_ids,
                attention_mask,
                token_type_ids,
                labels,
                next_sentence_label: input(case, "next_sentence_label"),
            })
            .unwrap();
        assert_near(
            "sentence order",
            &output.seq_relationship_logits,
            &case["seq_relationship_logits"],
        );
        (output.prediction_logits, output.loss.unwrap())
    });
}
