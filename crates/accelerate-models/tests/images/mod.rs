//! What tests of models for images have in common.

use std::path::Path;

use accelerate::nn::Module;
use accelerate_testkit::{formula, formula_salt};
use serde_json::Value;
use tch::{Kind, Tensor};

pub(crate) fn recorded(name: &str) -> Value {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures");
    serde_json::from_slice(&std::fs::read(fixtures.join(name)).unwrap()).unwrap()
}

pub(crate) fn filled(shape: &[i64], salt: u32) -> Tensor {
    filled_around(shape, salt, 0.0, 1.0)
}

fn filled_around(shape: &[i64], salt: u32, centre: f64, spread: f64) -> Tensor {
    let count = shape.iter().product::<i64>() as usize;
    Tensor::from_slice(&formula(count, salt, centre, spread)).reshape(shape)
}

/// Gives every parameter and buffer the value that it had in the recording.
pub(crate) fn fill(model: &dyn Module) {
    let parameters = model.named_parameters();
    let parameters = parameters.iter().map(|(name, one)| (name, one.tensor()));
    let buffers = model.named_buffers();
    let buffers = buffers.iter().map(|(name, one)| (name, one.tensor()));
    for (name, tensor) in parameters.chain(buffers) {
        if tensor.kind() != Kind::Float {
            continue;
        }
        let shape = tensor.size();
        let (centre, spread) = match shape.as_slice() {
            [_, inner @ ..] if !inner.is_empty() => {
                (0.0, (6.0 / inner.iter().product::<i64>() as f64).sqrt())
            }
            _ if name.ends_with("running_var") => (1.0, 0.5),
            _ if name.ends_with("weight") => (1.0, 0.25),
            _ => (0.0, 0.25),
        };
        let values = filled_around(&shape, formula_salt(name), centre, spread);
        tch::no_grad(|| tensor.shallow_clone().copy_(&values));
    }
}

/// The shape of one parameter.
pub(crate) fn shape_of(model: &dyn Module, name: &str) -> Vec<i64> {
    let parameters = model.named_parameters();
    let (_, found) = parameters.iter().find(|(other, _)| other == name).unwrap();
    found.shape()
}

#[track_caller]
pub(crate) fn assert_close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let gap = (found - expected).abs();
    assert!(
        gap <= tolerance * (expected.abs() + 1.0),
        "{what}: {found} {expected}"
    );
}

/// Compares a table of numbers.
#[track_caller]
pub(crate) fn assert_rows(what: &str, found: &Tensor, expected: &Value, tolerance: f64) {
    for (row, expected) in expected.as_array().unwrap().iter().enumerate() {
        for (column, expected) in expected.as_array().unwrap().iter().enumerate() {
            let found = found.double_value(&[row as i64, column as i64]);
            let what = format!("{what} {row} {column}");
            assert_close(&what, found, expected.as_f64().unwrap(), tolerance);
        }
    }
}

/// First values, by the first one and the norm of each parameter.
pub(crate) fn fresh(model: &dyn Module, expected: &Value) {
    let parameters = model.named_parameters();
    assert_eq!(parameters.len(), expected.as_object().unwrap().len());
    for (name, parameter) in parameters {
        let values = parameter
            .tensor()
            .detach()
            .to_kind(Kind::Double)
            .reshape([-1]);
        let expected = |index: usize| expected[&name][index].as_f64().unwrap();
        assert_eq!(values.double_value(&[0]), expected(0), "{name}");
        assert_close(&name, values.norm().double_value(&[]), expected(1), 1e-12);
    }
}

/// One recorded step.
pub(crate) struct Step<'r>(&'r Value);

impl<'r> Step<'r> {
    pub(crate) fn new(recorded: &'r Value) -> Self {
        Self(recorded)
    }

    pub(crate) fn images(&self) -> Tensor {
        let shape = self.0["shape"].as_array().unwrap();
        let shape: Vec<i64> = shape.iter().map(|size| size.as_i64().unwrap()).collect();
        filled(&shape, 0)
    }

    pub(crate) fn labels(&self) -> Tensor {
        let logits = self.0["first_logits"].as_array().unwrap();
        let classes = logits[0].as_array().unwrap().len() as i64;
        let labels: Vec<i64> = (0..logits.len() as i64)
            .map(|row| (3 * row + 1) % classes)
            .collect();
        Tensor::from_slice(&labels)
    }

    /// Runs the step as the recorder did and compares everything that it recorded.
    pub(crate) fn check(&self, model: &dyn Module, logits_of: impl Fn(Tensor) -> Tensor) {
        let shapes: serde_json::Map<String, Value> = model
            .named_parameters()
            .into_iter()
            .map(|(name, parameter)| (name, parameter.shape().into()))
            .collect();
        assert_eq!(Value::from(shapes), self.0["parameters"]);
        fill(model);
        model.train(true);
        let logits = logits_of(self.images());
        assert_rows("logits", &logits, &self.0["first_logits"], 1e-5);
        let loss = logits.cross_entropy_for_logits(&self.labels());
        let expected = self.0["losses"][0].as_f64().unwrap();
        assert_close("loss", loss.double_value(&[]), expected, 1e-5);
        loss.backward();
        for (name, parameter) in model.named_parameters() {
            let gradient = parameter.tensor().grad();
            let expected = self.0["first_grad_norms"][&name].as_f64().unwrap();
            let found = gradient.to_kind(Kind::Double).norm().double_value(&[]);
            assert!(
                (found - expected).abs() <= 1e-5 * expected + 1e-6,
                "{name}: {found} {expected}"
            );
        }
        for (name, buffer) in model.named_buffers() {
            let expected = self.0["buffer_norms"][&name].as_f64().unwrap();
            let found = buffer
                .tensor()
                .to_kind(Kind::Double)
                .norm()
                .double_value(&[]);
            assert_close(&name, found, expected, 1e-5);
        }
        model.train(false);
        let evaluated = tch::no_grad(|| logits_of(self.images()));
        assert_rows("evaluated", &evaluated, &self.0["evaluated_logits"], 1e-5);
    }
}
