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

#[test]
fn rms_norm_rounds_where_llama_does() -> Result<()> {
    let half = Factory::new(Device::Cpu, Kind::BFloat16);
    let layer = RmsNorm::new(4, 1e-6, &half)?.with_class_name("LlamaRMSNorm");
    assert_eq!(layer.class_name(), "LlamaRMSNorm");
    let weight = Tensor::from_slice(&[1.5f32, 0.7, 2.0, 1.1]);
    tch::no_grad(|| layer.weight.tensor().shallow_clone().f_copy_(&weight))?;
    let row = Tensor::from_slice(&[1.0f32, 2.0, 4.0, 8.3]).to_kind(Kind::BFloat16);
    assert_values(
        &layer.call(&row)?.to_kind(Kind::Float),
        &[0.316_406_25, 0.294_921_88, 1.6875, 1.9296875],
    );
    Ok(())
}

#[test]
fn alibi_falls_with_distance() -> Result<()> {
    let mask = Tensor::from_slice(&[0i64, 1, 1, 1]).view([1, 4]);
    let slopes = alibi_slopes(6)?;
    assert_values(&slopes, &[0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
    let biases = alibi_biases(&slopes, &mask)?;
    assert_eq!(biases.size(), [1, 6, 1, 4]);
    assert_values(&biases.select(1, 4), &[0.0, 0.0, 0.5, 1.0]);
    assert_values(&alibi_slopes(1)?, &[0.00390625]);
    assert!(alibi_slopes(0).is_err());
    Ok(())
}

#[test]
fn rotation_keeps_lengths_and_depends_on_distance_only() -> Result<()> {
    let settings = RotarySettings {
        width: 8,
        base: 100.0,
        max_positions: 16,
        scaling: RotaryScaling::None,
    };
    let layer = RotaryEmbedding::new(settings.clone(), Device::Cpu)?;
    assert!(
        layer
            .named_buffers()
            .iter()
            .all(|(_, buffer)| !buffer.is_persistent())
    );
    let (query, key) = (
        Tensor::f_arange(8, (Kind::Float, Device::Cpu))?.view([1, 1, 1, 8]),
        Tensor::f_linspace(1.0, -1.0, 8, (Kind::Float, Device::Cpu))?.view([1, 1, 1, 8]),
    );
    let turned = |states: &Tensor, position: i64| -> Result<Tensor> {
        let positions = Tensor::from_slice(&[position]).view([1, 1]);
        let (cosines, sines) = layer.call((states, &positions))?;
        rotate(states, &cosines, &sines)
    };
    let product = |one: i64, other: i64| -> Result<f64> {
        let product = turned(&query, one)? * turned(&key, other)?;
        Ok(product.sum(Kind::Double).double_value(&[]))
    };
    assert!((product(5, 3)? - product(12, 10)?).abs() < 1e-5);
    assert!((product(5, 3)? - product(5, 4)?).abs() > 1e-2);
    let norm = |tensor: Tensor| tensor.norm().double_value(&[]);
    assert!((norm(turned(&query, 9)?) - norm(query.shallow_clone())).abs() < 1e-5);
    let odd = RotarySettings {
        width: 7,
        ..settings
    };
    assert!(RotaryEmbedding::new(odd, Device::Cpu).is_err());
    Ok(())
}

#[test]
fn heads_of_a_group_share_keys() -> Result<()> {
    let options = (Kind::Float, Device::Cpu);
    let states = |heads: i64, tokens: i64, from: f64| -> Result<Tensor> {
        let count = 2 * heads * tokens * 4;
        Ok(Tensor::f_linspace(from, -from, count, options)?
            .f_sin()?
            .f_view([2, heads, tokens, 4])?)
    };
    let (key, value) = (states(2, 3, 7.0)?, states(2, 3, 11.0)?);
    let spread = |tensor: &Tensor| tensor.repeat_interleave_self_int(2, Some(1), None::<i64>);
    let keep = Tensor::from_slice(&[true, true, true, false, true, true]).view([2, 1, 1, 3]);
    for queries in [1, 3] {
        let query = states(4, queries, 3.0)?;
        for (mask, causal) in [(None, false), (Some(&keep), false), (None, queries > 1)] {
            let settings = Attention {
                causal,
                ..Attention::default()
            };
            let found = scaled_dot_product_attention(&query, &key, &value, mask, &settings)?;
            let (key, value) = (spread(&key), spread(&value));
            let expected = scaled_dot_product_attention(&query, &key, &value, mask, &settings)?;
            let apart = (&found - &expected).abs().max().double_value(&[]);
            assert!(apart < 1e-6, "{queries} {causal}: {apart}");
        }
    }
    let three = states(3, 3, 1.0)?;
    let error = scaled_dot_product_attention(&three, &key, &value, None, &Attention::default());
    assert!(error.is_err_and(|error| error.to_string().contains("divides the 3 heads")));
    Ok(())
}

#[test]
fn experts_get_the_tokens_that_chose_them() -> Result<()> {
    let factory = Factory::default();
    let expert = |by: f64| -> Result<Linear> {
        let layer = Linear::without_bias(2, 2, &factory)?;
        let weight = Tensor::f_eye(2, (Kind::Float, Device::Cpu))? * by;
        tch::no_grad(|| layer.weight.tensor().shallow_clone().f_copy_(&weight))?;
        Ok(layer)
    };
    let experts = vec![expert(1.0)?, expert(10.0)?, expert(100.0)?];
    let moe = MixtureOfExperts::new(2, experts, 1, &factory)?;
    assert_eq!(moe.experts().len(), 3);
    let (_, gate) = &moe.named_parameters()[0];
    let choose = Tensor::from_slice(&[9.0f32, 0.0, 0.0, 9.0, -9.0, -9.0]).view([3, 2]);
    tch::no_grad(|| gate.tensor().shallow_clone().f_copy_(&choose))?;
    let tokens = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0, -1.0, 0.0]).view([1, 3, 2]);
    let (mixed, logits) = moe.call(&tokens)?;
    assert_values(&mixed, &[1.0, 0.0, 0.0, 10.0, -100.0, 0.0]);
    assert_eq!(logits.size(), [3, 3]);
    // Evenly dealt out, the loss is as small as it gets.
    let even = load_balancing_loss(&[logits.shallow_clone()], 1, None)?.double_value(&[]);
    let one_sided = logits.narrow(0, 0, 1).expand([3, 3], false);
    let uneven = load_balancing_loss(&[one_sided], 1, None)?.double_value(&[]);
    assert!((even - 1.0).abs() < 0.01 && uneven > 2.9, "{even} {uneven}");
    assert!(MixtureOfExperts::new(2, vec![expert(1.0)?], 2, &factory).is_err());
    Ok(())
}
