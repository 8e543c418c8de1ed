use tch::Tensor;

use crate::Result;
use crate::nn::{
    Activation, ActivationFunction, AdaptiveAvgPool2d, Attention, BatchNorm2d, BatchNormOptions,
    Conv1d, Conv1dOptions, Conv2d, Conv2dOptions, ConvPadding, Dropout, Embedding, Factory,
    Forward, LayerNorm, Linear, MixtureOfExperts, Module, RmsNorm, scaled_dot_product_attention,
    shapes_only,
};

/// What a layer makes of an input of this shape, neither of which has values.
fn shape_of<L: Forward<Input = Tensor, Output = Tensor>>(
    layer: &L,
    input: &[i64],
) -> Result<Vec<i64>> {
    let input = Factory::default().on_meta().empty(input)?;
    Ok(shapes_only(|| layer.call(&input))?.size())
}

#[test]
fn every_layer_tells_its_shape_without_values() -> Result<()> {
    let factory = Factory::default().on_meta();
    let norm = LayerNorm::new(8, 1e-5, &factory)?;
    assert_eq!(shape_of(&norm, &[2, 3, 8])?, [2, 3, 8]);
    let error = shape_of(&norm, &[2, 3, 7]).unwrap_err().to_string();
    assert!(
        error.contains("ends with [8]") && error.contains("[2, 3, 7]"),
        "{error}"
    );
    let rms = RmsNorm::new(8, 1e-6, &factory)?;
    assert_eq!(shape_of(&rms, &[2, 8])?, [2, 8]);
    let embedding = Embedding::new(5, 8, &factory)?;
    assert_eq!(shape_of(&embedding, &[2, 3])?, [2, 3, 8]);
    assert_eq!(shape_of(&Dropout::new(0.5)?, &[2, 3])?, [2, 3]);
    for function in [
        ActivationFunction::Relu,
        ActivationFunction::Gelu,
        ActivationFunction::GeluNew,
        ActivationFunction::Silu,
    ] {
        assert_eq!(shape_of(&Activation::new(function), &[2, 3])?, [2, 3]);
    }
    for training in [true, false] {
        let norm = BatchNorm2d::new(3, BatchNormOptions::default(), &factory)?;
        norm.train(training);
        assert_eq!(shape_of(&norm, &[2, 3, 4, 5])?, [2, 3, 4, 5]);
    }
    let pool = AdaptiveAvgPool2d::new([Some(2), None]);
    assert_eq!(shape_of(&pool, &[2, 3, 9, 7])?, [2, 3, 2, 7]);
    Ok(())
}

#[test]
fn convolutions_tell_the_shapes_that_they_have_with_values() -> Result<()> {
    let strided = Conv2dOptions {
        stride: [2, 1],
        padding: ConvPadding::Zeros([1, 2]),
        dilation: [1, 3],
        groups: 2,
        bias: false,
    };
    let same = Conv2dOptions {
        padding: ConvPadding::Same,
        ..Conv2dOptions::default()
    };
    for (options, shape) in [
        (strided, vec![2, 4, 9, 11]),
        (strided, vec![4, 10, 8]),
        (same, vec![1, 4, 5, 6]),
        (Conv2dOptions::default(), vec![1, 4, 3, 3]),
    ] {
        let real = Factory::default();
        let layer = Conv2d::new(4, 6, [3, 3], options, &real)?;
        let expected = layer.call(real.empty(&shape)?)?.size();
        let layer = Conv2d::new(4, 6, [3, 3], options, &real.on_meta())?;
        assert_eq!(shape_of(&layer, &shape)?, expected, "{options:?}");
    }
    let layer = Conv1d::new(
        4,
        6,
        [5],
        Conv1dOptions::default(),
        &Factory::default().on_meta(),
    )?;
    assert_eq!(shape_of(&layer, &[2, 4, 9])?, [2, 6, 5]);
    for wrong in [&[2, 4, 3][..], &[2, 3, 9], &[9], &[1, 2, 4, 9]] {
        assert!(shape_of(&layer, wrong).is_err(), "{wrong:?}");
    }
    Ok(())
}

#[test]
fn attention_tells_its_shape_without_values() -> Result<()> {
    let factory = Factory::default().on_meta();
    let attention = |query: &[i64], key: &[i64], value: &[i64]| -> Result<Vec<i64>> {
        let [query, key, value] = [query, key, value].map(|shape| factory.empty(shape));
        let settings = Attention::default();
        let output = scaled_dot_product_attention(&query?, &key?, &value?, None, &settings)?;
        Ok(output.size())
    };
    let shape = attention(&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 5, 6])?;
    assert_eq!(shape, [2, 4, 3, 6]);
    assert!(attention(&[2, 4, 3, 8], &[2, 2, 5, 7], &[2, 2, 5, 6]).is_err());
    assert!(attention(&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 4, 6]).is_err());
    Ok(())
}

#[test]
fn a_mixture_of_experts_tells_its_shapes_without_values() -> Result<()> {
    let factory = Factory::default().on_meta();
    let experts = (0..3)
        .map(|_| Linear::without_bias(8, 8, &factory))
        .collect::<Result<Vec<_>>>()?;
    let mixture = MixtureOfExperts::new(8, experts, 2, &factory)?;
    let (mixed, logits) = shapes_only(|| mixture.call(factory.empty(&[2, 5, 8])?))?;
    assert_eq!(mixed.size(), [2, 5, 8]);
    assert_eq!(logits.size(), [10, 3]);
    Ok(())
}
