//! ViT against the numbers that `tests/parity` recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod images;

use std::collections::BTreeMap;

use accelerate::nn::{Factory, Forward, Module};
use accelerate_models::image_classification::{AutoModelForImageClassification, ImageInput};
use accelerate_models::pretrained::{PretrainedConfig, PretrainedModel};
use accelerate_models::vit::{ViTConfig, ViTForImageClassification, ViTModel, ViTModelInput};
use images::{Step, assert_close, assert_rows, fill, fresh, recorded, shape_of};
use serde_json::Value;
use tch::{Kind, Tensor};

fn config(recorded: &Value) -> ViTConfig {
    let mut config: ViTConfig = serde_json::from_value(recorded["config"].clone()).unwrap();
    config.settle();
    config
}

fn input(images: Tensor) -> ImageInput {
    ImageInput {
        pixel_values: images,
        labels: None,
    }
}

#[test]
fn first_step_is_that_of_transformers() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("vit.json");
    let config = config(&recorded);
    let model = ViTForImageClassification::new(&config, &Factory::default()).unwrap();
    let step = Step::new(&recorded["step"]);
    step.check(&model, |images| model.call(input(images)).unwrap().logits);
    let labelled = ImageInput {
        labels: Some(step.labels()),
        ..input(step.images())
    };
    let loss = model
        .call(labelled)
        .unwrap()
        .loss
        .unwrap()
        .double_value(&[]);
    let expected = recorded["step"]["losses"][0].as_f64().unwrap();
    assert_close("loss", loss, expected, 1e-5);
}

#[test]
fn positions_are_stretched_over_larger_images() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("vit.json");
    let bare = &recorded["bare"];
    let mut json = recorded["config"].clone();
    json["image_size"] = bare["image_size"].clone();
    let config: ViTConfig = serde_json::from_value(json).unwrap();
    let model = ViTModel::new(&config, &Factory::default()).unwrap();
    let shapes: BTreeMap<String, Vec<i64>> = model
        .named_parameters()
        .into_iter()
        .map(|(name, parameter)| (name, parameter.shape()))
        .collect();
    let expected: BTreeMap<String, Vec<i64>> =
        serde_json::from_value(bare["parameters"].clone()).unwrap();
    assert_eq!(shapes, expected);
    fill(&model);
    model.train(false);
    let run = |interpolate_pos_encoding| {
        model.call(ViTModelInput {
            pixel_values: images::filled(&[2, 3, 24, 24], 0),
            interpolate_pos_encoding,
        })
    };
    let output = run(true).unwrap();
    let hidden = output.last_hidden_state;
    assert_rows("hidden", &hidden.select(0, 0), &bare["hidden_first"], 1e-5);
    let sum = hidden.sum(Kind::Double).double_value(&[]);
    assert_close("sum", sum, bare["hidden_sum"].as_f64().unwrap(), 1e-4);
    let pooled = output.pooler_output.unwrap();
    assert_rows("pooled", &pooled, &bare["pooled"], 1e-5);
    let error = run(false).unwrap_err().to_string();
    assert!(error.contains("height 16 and width 16"), "{error}");
    let error = model.call(ViTModelInput {
        pixel_values: images::filled(&[2, 1, 16, 16], 0),
        interpolate_pos_encoding: false,
    });
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("[batch, 3, height, width]")
    );
}

#[test]
fn new_weights_are_those_of_transformers() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("vit.json");
    tch::manual_seed(recorded["seed"].as_i64().unwrap());
    let model = ViTForImageClassification::new(&config(&recorded), &Factory::default()).unwrap();
    fresh(&model, &recorded["fresh"]);
}

/// The name that files of the original have for a name of the model.
fn stored(name: &str) -> String {
    [
        ("attention.q_proj", "attention.attention.query"),
        ("attention.k_proj", "attention.attention.key"),
        ("attention.v_proj", "attention.attention.value"),
        ("attention.o_proj", "attention.output.dense"),
        ("mlp.fc1", "intermediate.dense"),
        ("mlp.fc2", "output.dense"),
        ("layers.", "encoder.layer."),
    ]
    .iter()
    .fold(name.to_owned(), |name, (now, then)| name.replace(now, then))
}

#[test]
fn folders_with_both_kinds_of_names_are_read() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("vit.json");
    let model = ViTForImageClassification::new(&config(&recorded), &Factory::default()).unwrap();
    fill(&model);
    model.train(false);
    let folder = tempfile::tempdir().unwrap();
    model.save_pretrained(folder.path()).unwrap();
    let pixels = || images::filled(&[3, 3, 24, 16], 0);
    let expected = model.call(input(pixels())).unwrap().logits;
    let logits = || {
        let model =
            AutoModelForImageClassification::from_folder(folder.path(), &Factory::default());
        model.unwrap().call(input(pixels())).unwrap().logits
    };
    assert_eq!(logits(), expected);

    let names: Vec<String> = model
        .named_parameters()
        .into_iter()
        .map(|(name, _)| stored(&name))
        .collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(Value::from(sorted), recorded["stored_names"]);
    let tensors = model.named_parameters().into_iter().zip(&names);
    let tensors: Vec<(&str, Tensor)> = tensors
        .map(|((_, parameter), name)| (name.as_str(), parameter.tensor().detach()))
        .collect();
    Tensor::write_safetensors(&tensors, folder.path().join("model.safetensors")).unwrap();
    assert_eq!(logits(), expected);

    // A bare model reads it too and gets a pooler of its own.
    let bare = ViTModel::from_folder(folder.path(), &Factory::default()).unwrap();
    assert_eq!(shape_of(&bare, "pooler.dense.weight"), [32, 32]);
    let hidden = bare.call(ViTModelInput {
        pixel_values: pixels(),
        interpolate_pos_encoding: false,
    });
    assert_eq!(hidden.unwrap().last_hidden_state.size(), [3, 7, 32]);
}
