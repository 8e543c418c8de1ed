//! First values against those that `torch.nn.init` draws with the same seed.
//!
//! A file of its own with one test that draws, because libtorch has one generator for the process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use accelerate::Result;
use accelerate::nn::init::{self, Fan, Nonlinearity};
use accelerate::tch::{self, Device, Kind, Tensor};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    seed: i64,
    gains: std::collections::BTreeMap<String, f64>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    shape: Vec<i64>,
    drawn: Vec<f32>,
    next: f32,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!(
        "../../../tests/parity/fixtures/initialisers.json"
    ))
    .unwrap()
}

fn fill(name: &str, tensor: &Tensor) -> Result<()> {
    let leaky = |slope| Nonlinearity::LeakyRelu { slope };
    match name {
        "uniform" => init::uniform(tensor, -2.0, 3.0),
        "normal" => init::normal(tensor, 1.0, 0.5),
        "normal_small" => init::normal(tensor, 0.0, 0.02),
        "trunc_normal" => init::trunc_normal(tensor, 0.0, 1.0, -2.0, 2.0),
        "trunc_normal_std" => init::trunc_normal(tensor, 0.1, 0.02, -0.04, 0.1),
        "trunc_normal_tail" => init::trunc_normal(tensor, 0.0, 1.0, 1.0, 1.5),
        "constant" => init::constant(tensor, 0.3),
        "ones" => init::ones(tensor),
        "zeros" => init::zeros(tensor),
        "eye" => init::eye(tensor),
        "dirac_1d" | "dirac_3d" => init::dirac(tensor, 1),
        "dirac_2d_groups" => init::dirac(tensor, 2),
        "xavier_uniform" => init::xavier_uniform(tensor, 1.0),
        "xavier_uniform_gain" => init::xavier_uniform(tensor, Nonlinearity::Relu.gain()),
        "xavier_normal" => init::xavier_normal(tensor, Nonlinearity::Tanh.gain()),
        "kaiming_uniform" => init::kaiming_uniform(tensor, 0.0),
        "kaiming_uniform_out_relu" => {
            init::kaiming_uniform_for(tensor, Fan::Out, Nonlinearity::Relu)
        }
        "kaiming_normal" => init::kaiming_normal_for(tensor, Fan::In, leaky(0.2)),
        "kaiming_normal_out_selu" => init::kaiming_normal_for(tensor, Fan::Out, Nonlinearity::Selu),
        "orthogonal_wide" | "orthogonal_kernel" => init::orthogonal(tensor, 1.0),
        "orthogonal_tall" => init::orthogonal(tensor, 2.0),
        "sparse" => init::sparse(tensor, 0.4, 0.5),
        other => panic!("the fixture has a case `{other}` that nobody fills"),
    }
}

/// Kernels of processors differ in the last bits of logarithms, sines and matrix products.
fn assert_close(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let distance = (found - expected).abs();
        assert!(
            distance <= 1e-6 * expected.abs().max(1.0),
            "{name}[{place}]: expected {expected}, found {found}"
        );
    }
}

#[test]
fn values_and_draws_are_those_of_pytorch() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let fixture = fixture();
    tch::set_num_threads(1);
    for case in &fixture.cases {
        let tensor = Tensor::f_full(case.shape.as_slice(), f64::NAN, (Kind::Float, Device::Cpu))?
            .f_set_requires_grad(true)?;
        tch::manual_seed(fixture.seed);
        fill(&case.name, &tensor)?;
        let next = Tensor::f_rand([1], (Kind::Float, Device::Cpu))?;
        let found: Vec<f32> = Vec::try_from(tensor.f_detach()?.f_flatten(0, -1)?)?;
        assert_close(&case.name, &found, &case.drawn);
        assert_eq!(
            next.double_value(&[0]),
            f64::from(case.next),
            "{} drew another count of numbers",
            case.name
        );
        assert!(tensor.requires_grad() && tensor.is_leaf(), "{}", case.name);
    }
    Ok(())
}

#[test]
fn gains_are_those_of_pytorch() {
    let _turn = accelerate_testkit::turn();
    let gains = fixture().gains;
    for (name, nonlinearity) in [
        ("linear", Nonlinearity::Linear),
        ("sigmoid", Nonlinearity::Sigmoid),
        ("tanh", Nonlinearity::Tanh),
        ("relu", Nonlinearity::Relu),
        ("leaky_relu", Nonlinearity::LeakyRelu { slope: 0.2 }),
        ("selu", Nonlinearity::Selu),
    ] {
        assert_eq!(nonlinearity.gain(), gains[name], "{name}");
    }
}

#[test]
fn what_cannot_be_filled_is_an_error() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let make = |shape: &[i64]| Tensor::f_zeros(shape, (Kind::Float, Device::Cpu));
    let (row, matrix, kernel) = (make(&[3])?, make(&[3, 2])?, make(&[3, 2, 2])?);
    for (operation, result) in [
        ("fan_in", init::xavier_normal(&row, 1.0)),
        ("fan_in", init::kaiming_uniform(&row, 0.0)),
        ("eye", init::eye(&kernel)),
        ("dirac", init::dirac(&matrix, 1)),
        ("dirac", init::dirac(&kernel, 2)),
        ("orthogonal", init::orthogonal(&row, 1.0)),
        ("sparse", init::sparse(&kernel, 0.1, 1.0)),
        ("sparse", init::sparse(&matrix, 1.5, 1.0)),
        (
            "trunc_normal",
            init::trunc_normal(&row, 0.0, 0.0, -1.0, 1.0),
        ),
        ("trunc_normal", init::trunc_normal(&row, 0.0, 1.0, 1.0, 1.0)),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{operation}` needs")),
            "{error}"
        );
    }
    let none = make(&[0, 2])?;
    init::orthogonal(&none, 1.0)?;
    init::kaiming_normal_for(&none, Fan::In, Nonlinearity::Relu)?;
    init::kaiming_uniform(&make(&[2, 0])?, 0.0)
}
