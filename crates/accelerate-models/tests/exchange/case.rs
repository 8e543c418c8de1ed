//! One model on its way to Python and back.

use std::path::Path;

use accelerate::nn::Factory;
use accelerate_models::{PretrainedConfig, PretrainedModel};
use serde_json::Value;
use tch::{Kind, Tensor};

/// Relative to the largest number of the output.
const TOLERANCE: f64 = 1e-5;

type Write = dyn Fn(&Path, &Value) -> Tensor;
type Read = dyn Fn(&Path, &Path, &Value) -> Tensor;

/// One model on its way to Python and back.
pub(crate) struct Case {
    pub(crate) class: &'static str,
    pub(crate) inputs: Value,
    /// The field of the output that is compared.
    pub(crate) output: &'static str,
    /// Makes a model, writes it to a folder, and gives its output.
    pub(crate) write: Box<Write>,
    /// Reads a folder, compares the weights with the first one's, and gives the output.
    pub(crate) read: Box<Read>,
}

/// A model with new weights and this configuration, which `run` calls.
pub(crate) fn case<M: PretrainedModel + 'static>(
    class: &'static str,
    config: Value,
    inputs: Value,
    output: &'static str,
    run: fn(&M, &Value) -> Tensor,
) -> Case {
    let write = move |folder: &Path, inputs: &Value| {
        let mut config: M::Config = serde_json::from_value(config.clone()).unwrap();
        config.settle();
        let model = M::new(&config, &Factory::default()).unwrap();
        model.train(false);
        model.save_pretrained(folder).unwrap();
        tch::no_grad(|| run(&model, inputs))
    };
    let read = move |folder: &Path, first: &Path, inputs: &Value| {
        let [model, first] =
            [folder, first].map(|folder| M::from_folder(folder, &Factory::default()).unwrap());
        let pairs = model
            .named_parameters()
            .into_iter()
            .zip(first.named_parameters());
        for ((name, one), (first_name, other)) in pairs {
            assert_eq!(name, first_name);
            assert_eq!(one.tensor(), other.tensor(), "{class}: {name}");
        }
        assert_eq!(
            model.named_parameters().len(),
            first.named_parameters().len()
        );
        tch::no_grad(|| run(&model, inputs))
    };
    Case {
        class,
        inputs,
        output,
        write: Box::new(write),
        read: Box::new(read),
    }
}

/// A list of integers, or of lists of them.
pub(crate) fn integers(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    if rows.iter().all(Value::is_number) {
        let values: Vec<i64> = rows.iter().map(|number| number.as_i64().unwrap()).collect();
        return Tensor::from_slice(&values);
    }
    Tensor::stack(&rows.iter().map(integers).collect::<Vec<_>>(), 0)
}

/// All numbers of nested lists.
pub(crate) fn flat(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| flat(item, into)),
        number => into.push(number.as_f64().unwrap()),
    }
}

#[track_caller]
pub(crate) fn assert_near(class: &str, found: &Tensor, expected: &Tensor) {
    let largest = expected.abs().max().double_value(&[]);
    let error = (found.to_kind(Kind::Double).flatten(0, -1) - expected).abs();
    let error = error.max().double_value(&[]) / largest;
    assert!(error < TOLERANCE, "{class}: off by {error:e} of {largest}");
}
