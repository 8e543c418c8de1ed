//! New weights against those of transformers.
//!
//! A file of its own with one test, because libtorch has one generator for the whole process.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use accelerate::nn::Factory;
use accelerate_models::bert::{
    BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertForTokenClassification,
};
use accelerate_models::t5::{T5EncoderModel, T5ForConditionalGeneration};
use accelerate_models::{PretrainedConfig, PretrainedModel};
use serde_json::Value;
use tch::Kind;

/// Compares the sum of every parameter of a new model with the recorded one.
fn check<M: PretrainedModel>(recording: &Value, name: &str, but_for: &[&str]) {
    let case = &recording["cases"][name];
    let mut config: M::Config = serde_json::from_value(case["config"].clone()).unwrap();
    config.settle();
    tch::manual_seed(0);
    let model = M::new(&config, &Factory::default()).unwrap();
    let expected = case["first_values"].as_object().unwrap();
    for (parameter_name, parameter) in model.named_parameters() {
        if but_for.contains(&parameter_name.as_str()) {
            continue;
        }
        let expected = expected[&parameter_name].as_f64().unwrap();
        let found = parameter.tensor().sum(Kind::Double).double_value(&[]);
        assert!(
            (found - expected).abs() < 1e-6,
            "{name}: {parameter_name}: {found} {expected}"
        );
    }
}

#[test]
fn new_weights_are_those_of_transformers_for_the_same_seed() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures/text_models.json");
    let recording: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let recording = &recording;
    check::<BertForSequenceClassification>(recording, "BertForSequenceClassification", &[]);
    check::<BertForPreTraining>(recording, "BertForPreTraining", &[]);
    check::<BertForMaskedLM>(recording, "BertForMaskedLM", &[]);
    check::<BertForMaskedLM>(recording, "BertForMaskedLM untied", &[]);
    check::<BertForTokenClassification>(recording, "BertForTokenClassification", &[]);
    check::<T5ForConditionalGeneration>(recording, "T5ForConditionalGeneration", &[]);
    // The original ties a new model whatever its configuration says.
    let gated = "T5ForConditionalGeneration gated";
    check::<T5ForConditionalGeneration>(recording, gated, &["lm_head.weight"]);
    check::<T5ForConditionalGeneration>(recording, "T5ForConditionalGeneration silu", &[]);
    check::<T5EncoderModel>(recording, "T5EncoderModel", &[]);
}
