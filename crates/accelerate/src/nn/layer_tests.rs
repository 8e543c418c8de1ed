//! Layers against numbers recorded from PyTorch 2.13.

use tch::{Device, Kind, Tensor};

use super::*;
use crate::Result;

#[track_caller]
fn assert_values(found: &Tensor, expected: &[f32]) {
    let found: Vec<f32> = Vec::try_from(found.detach().reshape([-1])).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn factories_choose_first_values_and_types() -> Result<()> {
    let half = Factory::new(Device::Cpu, Kind::BFloat16);
    assert_eq!(
        Linear::new(2, 2, &half)?.weight.tensor().f_kind()?,
        Kind::BFloat16
    );
    let normal = Factory::default().with_init(Init::Normal { std: 0.02 });
    let layer = Linear::new(64, 64, &normal)?;
    assert!((layer.weight.dense()?.std(true).double_value(&[]) - 0.02).abs() < 2e-3);
    assert_values(layer.bias.unwrap().tensor(), &[0.0; 64]);
    Ok(())
}

#[test]
fn layer_norm_normalises_rows() -> Result<()> {
    let layer = LayerNorm::new(4, 1e-5, &Factory::default())?;
    let row = Tensor::from_slice(&[1.0f32, 2.0, 4.0, 8.0]).view([1, 4]);
    assert_values(
        &layer.call(&row)?,
        &[-1.0257546, -0.65275294, 0.093250416, 1.585257],
    );
    Ok(())
}

#[test]
fn activations_have_the_original_values() -> Result<()> {
    let input = Tensor::from_slice(&[-3.0f32, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
    let expected: [(&str, [f32; 7]); 5] = [
        (
            "gelu",
            [
                -0.0040498674,
                -0.0455001,
                -0.15865529,
                0.0,
                0.8413447,
                1.9545,
                2.9959502,
            ],
        ),
        (
            "gelu_pytorch_tanh",
            [
                -0.003637433,
                -0.04540229,
                -0.158808,
                0.0,
                0.841192,
                1.9545977,
                2.9963627,
            ],
        ),
        (
            "gelu_new",
            [
                -0.003637433,
                -0.04540229,
                -0.158808,
                0.0,
                0.841192,
                1.9545977,
                2.9963627,
            ],
        ),
        ("relu", [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0]),
        (
            "swish",
            [
                -0.14227761,
                -0.23840584,
                -0.26894143,
                0.0,
                0.7310586,
                1.761594,
                2.8577225,
            ],
        ),
    ];
    for (name, expected) in expected {
        let function: ActivationFunction = name.parse().unwrap();
        let found = Activation::new(function).call(&input)?;
        let distance = (found - Tensor::from_slice(&expected))
            .abs()
            .max()
            .double_value(&[]);
        assert!(distance < 1e-6, "{name}: {distance}");
    }
    let error = "gelu_10"
        .parse::<ActivationFunction>()
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("unknown activation `gelu_10`, expected one of `gelu`, "),
        "{error}"
    );
    Ok(())
}

#[test]
fn attention_follows_its_formula_and_mask() -> Result<()> {
    let make = || Tensor::f_randn([1, 2, 3, 4], (Kind::Double, Device::Cpu));
    let (query, key, value) = (make()?, make()?, make()?);
    let keep = Tensor::from_slice(&[true, true, false]).view([1, 1, 1, 3]);
    let found =
        scaled_dot_product_attention(&query, &key, &value, Some(&keep), &Attention::default())?;
    let scores = query.matmul(&key.transpose(2, 3)) * 0.5;
    let weights = scores
        .masked_fill(&keep.logical_not(), f64::NEG_INFINITY)
        .softmax(-1, Kind::Double);
    let distance = (found - weights.matmul(&value))
        .abs()
        .max()
        .double_value(&[]);
    assert!(distance < 1e-12, "{distance}");
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_are_errors() -> Result<()> {
    let layer = Linear::new(3, 2, &Factory::default())?;
    assert!(
        layer
            .call(&Tensor::f_ones([1, 4], (Kind::Float, Device::Cpu))?)
            .is_err()
    );
    assert!(init::kaiming_uniform(&Tensor::from(1.0f32), 0.0).is_err());
    Ok(())
}
