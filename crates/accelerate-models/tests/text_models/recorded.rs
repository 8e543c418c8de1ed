//! The recorded numbers, and how ours are compared with them.

use std::path::Path;

use accelerate::nn::Module;
use accelerate_models::PretrainedModel;
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::seeded;

/// Relative to the largest number at hand; the recorded machine's kernels may differ in the last
/// bits.
pub(crate) const TOLERANCE: f64 = 1e-5;

/// The whole recording.
pub(crate) fn recording() -> Value {
    let path = "../../tests/parity/fixtures/text_models.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
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

/// A part of the batch, where there is such a part.
pub(crate) fn input(case: &Value, name: &str) -> Option<Tensor> {
    case["inputs"].get(name).map(integers)
}

fn flat(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| flat(item, into)),
        number => into.push(number.as_f64().unwrap()),
    }
}

/// A model with the recorded configuration, and weights computed from the names.
pub(crate) fn model<M: PretrainedModel>(case: &Value, spread: f64) -> M {
    let mut config: M::Config = serde_json::from_value(case["config"].clone()).unwrap();
    accelerate_models::PretrainedConfig::settle(&mut config);
    let model = M::new(&config, &accelerate::nn::Factory::default()).unwrap();
    seeded::fill(&model, spread);
    model
}

#[track_caller]
pub(crate) fn assert_near(what: &str, found: &Tensor, expected: &Value) {
    let mut numbers = Vec::new();
    flat(expected, &mut numbers);
    assert_eq!(found.numel(), numbers.len(), "{what}");
    let expected = Tensor::from_slice(&numbers);
    let found = found.detach().to_kind(Kind::Double).flatten(0, -1);
    let largest = expected.abs().max().double_value(&[]);
    let error = (found - expected).abs().max().double_value(&[]) / largest;
    assert!(error < TOLERANCE, "{what}: off by {error:e} of {largest}");
}

/// Names, shapes and their order.
#[track_caller]
pub(crate) fn assert_parameters(model: &dyn Module, case: &Value) {
    let found: serde_json::Map<String, Value> = model
        .named_parameters()
        .into_iter()
        .map(|(name, parameter)| (name, parameter.shape().into()))
        .collect();
    assert_eq!(Value::from(found), case["parameters"]);
}

/// The loss and, after its backward pass, the gradient of every parameter.
#[track_caller]
pub(crate) fn assert_first_step(model: &dyn Module, loss: &Tensor, case: &Value) {
    let expected = case["loss"].as_f64().unwrap();
    let found = loss.double_value(&[]);
    assert!(
        (found - expected).abs() < TOLERANCE * expected,
        "loss {found}, not {expected}"
    );
    loss.backward();
    for (name, parameter) in model.named_parameters() {
        let gradient = parameter.tensor().grad();
        let expected = &case["gradients"][&name];
        if expected.is_null() {
            assert!(!gradient.defined(), "{name} has a gradient");
            continue;
        }
        let [norm, product] = [0, 1].map(|at| expected[at].as_f64().unwrap());
        let [found_norm, found_product] = seeded::probe(&name, &gradient);
        // The keys' offset has no gradient but for rounding.
        let room = TOLERANCE * norm + 1e-7;
        assert!(
            (found_norm - norm).abs() < room,
            "{name}: {found_norm} {norm}"
        );
        let room = 10.0 * room;
        assert!(
            (found_product - product).abs() < room,
            "{name}: {found_product} {product}"
        );
    }
}
