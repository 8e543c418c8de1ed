//! New weights against those of transformers.
//!
//! A file of its own, because libtorch has one generator for the whole process.

use accelerate::nn::{Factory, Module};
use accelerate_models::PretrainedModel;
use accelerate_models::bert::{BertConfig, BertForSequenceClassification};
use tch::Kind;

/// Sums of parameters that transformers 5.24 makes after `torch.manual_seed(0)`.
#[test]
fn new_weights_are_those_of_transformers_for_the_same_seed() {
    let json = r#"{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "intermediate_size": 16, "max_position_embeddings": 12}"#;
    let config: BertConfig = serde_json::from_str(json).unwrap();
    tch::manual_seed(0);
    let model = BertForSequenceClassification::new(&config, &Factory::default()).unwrap();
    for (name, parameter) in model.named_parameters() {
        let Some((_, expected)) = SEEDED.iter().find(|(other, _)| *other == name) else {
            continue;
        };
        let found = parameter.tensor().sum(Kind::Double).double_value(&[]);
        assert!(
            (found - expected).abs() < 1e-7,
            "{name}: {found} {expected}"
        );
    }
}

const SEEDED: [(&str, f64); 5] = [
    (
        "bert.embeddings.word_embeddings.weight",
        -0.2708808367824531,
    ),
    (
        "bert.embeddings.token_type_embeddings.weight",
        0.04067517817020416,
    ),
    (
        "bert.encoder.layer.1.output.dense.weight",
        -0.07186203554738313,
    ),
    ("bert.pooler.dense.weight", -0.3608476991939824),
    ("classifier.weight", 0.15181494364514947),
];
