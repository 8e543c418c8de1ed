//! Twenty steps of fine-tuning against the losses that `tests/parity` recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use accelerate::nn::{Factory, Forward, Module};
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use accelerate_torch::{autograd, fused};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

/// A list of numbers, or of lists of them, as int64.
fn integers(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    if rows.iter().all(Value::is_number) {
        let values: Vec<i64> = rows.iter().map(|number| number.as_i64().unwrap()).collect();
        return Tensor::from_slice(&values);
    }
    Tensor::stack(&rows.iter().map(integers).collect::<Vec<_>>(), 0)
}

#[test]
fn losses_of_twenty_steps_are_those_of_transformers() {
    tch::set_num_threads(1);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures");
    let recorded = std::fs::read(fixtures.join("bert_finetune.json")).unwrap();
    let recorded: Value = serde_json::from_slice(&recorded).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("config.json"),
        recorded["model"].to_string(),
    )
    .unwrap();
    std::fs::copy(
        fixtures.join("bert_tiny.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let model =
        BertForSequenceClassification::from_folder(folder.path(), 2, &Factory::default()).unwrap();
    model.train(true);

    let parameters: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|one| one.tensor().shallow_clone())
        .collect();
    let zeros = || {
        parameters
            .iter()
            .map(|one| one.detach().zeros_like())
            .collect::<Vec<Tensor>>()
    };
    let (averages, squares) = (zeros(), zeros());
    let training = &recorded["training"];
    let setting = |key: &str| training[key].as_f64().unwrap();
    let rank = &recorded["runs"][0]["ranks"][0];
    let mut different = 0;
    for (step, (batches, expected)) in recorded["batches"]
        .as_array()
        .unwrap()
        .iter()
        .zip(rank["losses"].as_array().unwrap())
        .enumerate()
    {
        let batch = &batches[0];
        let input = BertInput {
            input_ids: integers(&batch["input_ids"]),
            attention_mask: Some(integers(&batch["attention_mask"])),
            token_type_ids: Some(integers(&batch["token_type_ids"])),
            labels: Some(integers(&batch["labels"])),
        };
        let loss = model.call(input).unwrap().loss.unwrap();
        let (found, expected) = (loss.double_value(&[]), expected.as_f64().unwrap());
        assert!(
            (found - expected).abs() <= 1e-6 * expected,
            "step {step}: {found} {expected}"
        );
        different += usize::from(found != expected);
        loss.f_backward().unwrap();
        let gradients: Vec<Tensor> = parameters
            .iter()
            .map(|one| autograd::grad(one).unwrap().unwrap())
            .collect();
        let count = (step + 1) as f64;
        let steps: Vec<Tensor> = parameters
            .iter()
            .map(|_| Tensor::full([] as [i64; 0], count, (Kind::Float, Device::Cpu)))
            .collect();
        let settings = fused::AdamStep {
            lr: rank["lr"][step].as_f64().unwrap(),
            beta1: training["betas"][0].as_f64().unwrap(),
            beta2: training["betas"][1].as_f64().unwrap(),
            weight_decay: setting("weight_decay"),
            eps: setting("eps"),
            amsgrad: false,
            maximize: false,
        };
        let state = fused::AdamState {
            exp_avgs: &averages,
            exp_avg_sqs: &squares,
            max_exp_avg_sqs: &[],
            steps: &steps,
        };
        fused::adamw(
            &parameters,
            &gradients,
            state,
            &settings,
            fused::GradScale::default(),
        )
        .unwrap();
        parameters
            .iter()
            .for_each(|one| autograd::set_grad(one, None).unwrap());
    }
    println!("{different} of 20 losses differ in their last bits");
}
