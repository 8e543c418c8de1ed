//! Reading the recordings of decoder models, and their weights by formula.
#![allow(
    clippy::allow_attributes,
    dead_code,
    reason = "each test file is a crate of its own and uses a part"
)]

use std::path::Path;

use accelerate::nn::Module;
use serde_json::Value;
use tch::{Kind, Tensor};

/// A recording; the test that reads it computes in one thread, as the recorder did. Several threads
/// would only wait for each other over matrices this small.
pub(crate) fn recorded(name: &str) -> Value {
    tch::set_num_threads(1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures");
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// All numbers of nested lists, in order.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

/// A list of whole numbers, or of lists of them.
pub(crate) fn integers(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    if rows.iter().all(Value::is_number) {
        let values: Vec<i64> = rows.iter().map(|number| number.as_i64().unwrap()).collect();
        return Tensor::from_slice(&values);
    }
    Tensor::stack(&rows.iter().map(integers).collect::<Vec<_>>(), 0)
}

/// Gives every parameter the values that `recorders/formula_weights.py` describes.
pub(crate) fn fill(model: &dyn Module, spread: f64) {
    let mut parameters = model.named_parameters();
    parameters.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (number, (name, parameter)) in parameters.into_iter().enumerate() {
        let norm = name.contains("norm") || name.contains(".ln_");
        let centre = f64::from(u8::from(norm && name.ends_with("weight")));
        let spread = match parameter.shape().len() {
            1 => 0.05,
            _ => spread,
        };
        let values: Vec<f32> = (0..parameter.numel() as u64)
            .map(|index| (centre + spread * (2.0 * draw(index, number as u64) - 1.0)) as f32)
            .collect();
        let values = Tensor::from_slice(&values).reshape(parameter.shape().as_slice());
        tch::no_grad(|| parameter.tensor().shallow_clone().copy_(&values));
    }
}

/// A number within `0..1`.
fn draw(index: u64, parameter: u64) -> f64 {
    let modulus = 1_u64 << 32;
    let mut x = (index * 2_654_435_761 + parameter * 40_503 + 12_345) % modulus;
    x ^= x >> 15;
    x = x.wrapping_mul(2_246_822_519) % modulus;
    x ^= x >> 13;
    x as f64 / modulus as f64
}

/// Whether a tensor holds these whole numbers.
pub(crate) fn equal(found: &Tensor, expected: &Value) -> bool {
    let expected = integers(expected);
    found.size() == expected.size() && found.to_kind(Kind::Int64) == expected
}
