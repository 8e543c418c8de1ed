//! First values and dropout against numbers recorded from PyTorch 2.13 with `torch.manual_seed(7)`.
//!
//! A file of its own, because libtorch has one generator for the whole process.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use accelerate::Result;
use accelerate::nn::{Dropout, Embedding, Factory, Forward, Linear, Module};
use accelerate::tch::{self, Device, Kind, Tensor};

fn seeded<T>(make: impl FnOnce() -> Result<T>) -> Result<T> {
    tch::manual_seed(7);
    make()
}

#[track_caller]
fn assert_values(found: &Tensor, expected: &[f32]) {
    let found: Vec<f32> = Vec::try_from(found.detach().reshape([-1])).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn linear_draws_as_pytorch_does() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let layer = seeded(|| Linear::new(3, 2, &Factory::default()))?;
    let weight = [
        0.040325075,
        -0.34779212,
        0.18384182,
        0.18116128,
        -0.30858037,
        -0.08653163,
    ];
    assert_values(layer.weight.tensor(), &weight);
    assert_values(layer.bias.unwrap().tensor(), &[-0.33822793, 0.14980665]);
    Ok(())
}

#[test]
fn embedding_draws_as_pytorch_does_and_pads_with_zeros() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let layer = seeded(|| Embedding::with_padding(4, 3, 1, &Factory::default()))?;
    let table = [
        -0.1467951,
        0.7861413,
        0.94682163,
        0.0,
        0.0,
        0.0,
        -0.35562503,
        1.2323858,
        0.13817266,
        -1.6821985,
        0.3176783,
        0.13280697,
    ];
    assert_values(layer.weight.tensor(), &table);
    let out = layer.call(Tensor::from_slice(&[1i64, 2, 1]))?;
    out.f_sum(Kind::Float)?.f_backward()?;
    let gradient = layer.weight.tensor().grad();
    assert_values(&gradient.select(1, 0), &[0.0, 0.0, 1.0, 0.0]);
    assert!(Embedding::with_padding(4, 3, 4, &Factory::default()).is_err());
    Ok(())
}

#[test]
fn dropout_draws_as_pytorch_does_and_rests_in_evaluation() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let layer = Dropout::new(0.5)?;
    let ones = Tensor::f_ones([8], (Kind::Float, Device::Cpu))?;
    let dropped = seeded(|| layer.call(&ones))?;
    assert_values(&dropped, &[2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
    layer.train(false);
    assert_values(&layer.call(&ones)?, &[1.0; 8]);
    assert!(Dropout::new(-0.1).is_err() && Dropout::new(f64::NAN).is_err());
    Ok(())
}
