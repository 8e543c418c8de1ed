//! Weights that both sides compute from the parameter's name, as `tests/parity/recorders/seeded.py`
//! does.

use accelerate::nn::Module;
use tch::{Kind, Tensor};

/// `count` numbers within `centre - spread .. centre + spread`, always the same for a name.
fn numbers(name: &str, count: usize, centre: f64, spread: f64) -> Vec<f64> {
    let mut state = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = (state >> 40) as f64 / f64::from(1 << 24);
        centre + spread * (2.0 * part - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

/// Gives every parameter its values; a tied one those of its first name.
pub(crate) fn fill(model: &dyn Module, spread: f64) {
    for (name, parameter) in model.named_parameters() {
        let norm = ["LayerNorm.weight", "layer_norm.weight"]
            .iter()
            .any(|end| name.ends_with(end));
        let centre = if norm { 1.0 } else { 0.0 };
        let shape = parameter.shape();
        let spread = if shape.len() > 1 {
            spread
        } else {
            spread / 3.0
        };
        let values = numbers(&name, parameter.numel(), centre, spread);
        let values = Tensor::from_slice(&values)
            .to_kind(Kind::Float)
            .view(shape.as_slice());
        tch::no_grad(|| parameter.tensor().shallow_clone().copy_(&values));
    }
}

/// The norm of a gradient, and its product with numbers that depend on the place.
pub(crate) fn probe(name: &str, gradient: &Tensor) -> [f64; 2] {
    let weights = numbers(&format!("{name}.probe"), gradient.numel(), 0.0, 1.0);
    let flat = gradient.to_kind(Kind::Double).flatten(0, -1);
    let product = (&flat * Tensor::from_slice(&weights)).sum(Kind::Double);
    [flat.norm().double_value(&[]), product.double_value(&[])]
}
