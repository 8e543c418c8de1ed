//! Layers for images and signals against the numbers that `tests/parity` recorded from PyTorch.
//!
//! A file of its own, because first values are drawn from the one generator of the process.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroI64;
use std::path::Path;

use accelerate::Result;
use accelerate::nn::{
    AdaptiveAvgPool2d, AvgPool2d, AvgPool2dOptions, BatchNorm1d, BatchNorm2d, BatchNormOptions,
    Conv1d, Conv1dOptions, Conv2d, Conv2dOptions, ConvPadding, Factory, Flatten, Forward, Identity,
    MaxPool2d, MaxPool2dOptions, Module, SequentialOf,
};
use accelerate::tch::{self, Kind, Tensor};
use accelerate_testkit::{formula, formula_salt};
use serde_json::Value;

fn recorded() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/parity/fixtures/vision_layers.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn filled(shape: &[i64], salt: u32, centre: f64) -> Tensor {
    let count = shape.iter().product::<i64>() as usize;
    Tensor::from_slice(&formula(count, salt, centre, 1.0)).reshape(shape)
}

fn list<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(each).collect()
}

#[track_caller]
fn assert_close(what: &str, found: &Tensor, expected: &Value) {
    let found: Vec<f64> =
        Vec::try_from(found.detach().to_kind(Kind::Double).reshape([-1])).unwrap();
    let expected = list(expected, |number| number.as_f64().unwrap());
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let gap = (found - expected).abs();
        assert!(
            gap <= 1e-5 * expected.abs() + 1e-5,
            "{what} {place}: {found} {expected}"
        );
    }
}

fn set(tensor: &Tensor, values: &Tensor) {
    tch::no_grad(|| tensor.shallow_clone().f_copy_(values)).unwrap();
}

/// Runs a layer as the recorder did and compares everything that it recorded.
fn check(name: &str, layer: &impl Forward<Input = Tensor, Output = Tensor>) {
    let recorded = recorded();
    let case = &recorded["cases"][name];
    assert_eq!(
        layer.class_name(),
        case["class"].as_str().unwrap(),
        "{name}"
    );
    for (member, parameter) in layer.named_parameters() {
        let shape = parameter.shape();
        let centre = f64::from(shape.len() == 1 && member == "weight");
        set(
            parameter.tensor(),
            &filled(&shape, formula_salt(&member), centre),
        );
    }
    let shape = list(&case["shape"], |size| size.as_i64().unwrap());
    let mut outputs = Vec::new();
    for (step, expected) in list(&case["steps"], Value::clone).iter().enumerate() {
        let input = filled(&shape, step as u32, 0.25 * step as f64).set_requires_grad(true);
        let output = layer.call(&input).unwrap();
        assert_close(name, &output, &expected["output"]);
        for parameter in layer.parameters() {
            let mut parameter = parameter.tensor().shallow_clone();
            parameter.zero_grad();
        }
        let weights = filled(&output.size(), 50, 0.0);
        (&output * weights).sum(Kind::Float).backward();
        assert_close(name, &input.grad(), &expected["input_grad"]);
        outputs = output.size();
    }
    assert_eq!(
        outputs,
        list(&case["output_shape"], |size| size.as_i64().unwrap()),
        "{name}"
    );
    let parameters = layer.named_parameters();
    assert_eq!(parameters.len(), case["grads"].as_object().unwrap().len());
    for (member, parameter) in parameters {
        let what = format!("{name} {member}");
        assert_close(&what, &parameter.tensor().grad(), &case["grads"][&member]);
    }
    let buffers = layer.named_buffers();
    assert_eq!(buffers.len(), case["buffers"].as_object().unwrap().len());
    for (member, buffer) in buffers {
        assert!(buffer.is_persistent());
        let what = format!("{name} {member}");
        assert_close(&what, buffer.tensor(), &case["buffers"][&member]);
    }
    layer.train(false);
    let evaluated = layer.call(filled(&shape, 9, 0.0)).unwrap();
    assert_close(name, &evaluated, &case["evaluated"]);
}

#[test]
fn convolutions_are_those_of_pytorch() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let factory = Factory::default();
    let options = Conv1dOptions {
        stride: [2],
        padding: ConvPadding::Zeros([1]),
        dilation: [2],
        groups: 2,
        ..Default::default()
    };
    check("conv1d", &Conv1d::new(4, 6, [3], options, &factory)?);
    let options = Conv1dOptions {
        padding: ConvPadding::Same,
        ..Default::default()
    };
    check("conv1d_same", &Conv1d::new(2, 3, [4], options, &factory)?);
    let options = Conv2dOptions {
        stride: [2, 1],
        padding: ConvPadding::Zeros([1, 0]),
        ..Default::default()
    };
    check("conv2d", &Conv2d::new(3, 4, [3, 3], options, &factory)?);
    let options = Conv2dOptions {
        padding: ConvPadding::Same,
        dilation: [1, 2],
        bias: false,
        ..Default::default()
    };
    check(
        "conv2d_same",
        &Conv2d::new(2, 2, [2, 3], options, &factory)?,
    );
    let options = Conv2dOptions {
        groups: 4,
        bias: false,
        ..Default::default()
    };
    check(
        "conv2d_depthwise",
        &Conv2d::new(4, 8, [3, 3], options, &factory)?,
    );
    Ok(())
}

#[test]
fn batch_norms_are_those_of_pytorch() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let factory = Factory::default();
    let plain = BatchNormOptions::default();
    check("batch_norm1d", &BatchNorm1d::new(5, plain, &factory)?);
    let options = BatchNormOptions {
        eps: 1e-3,
        momentum: Some(0.3),
        ..plain
    };
    check(
        "batch_norm1d_length",
        &BatchNorm1d::new(3, options, &factory)?,
    );
    let of = |options| BatchNorm2d::new(4, options, &factory);
    check("batch_norm2d", &of(plain)?);
    let options = BatchNormOptions {
        momentum: None,
        ..plain
    };
    check("batch_norm2d_mean_of_all", &of(options)?);
    let options = BatchNormOptions {
        affine: false,
        ..plain
    };
    check("batch_norm2d_plain", &of(options)?);
    let options = BatchNormOptions {
        track_running_stats: false,
        ..plain
    };
    check("batch_norm2d_untracked", &of(options)?);
    let options = BatchNormOptions {
        bias: false,
        ..plain
    };
    check("batch_norm2d_no_bias", &of(options)?);
    Ok(())
}

#[test]
fn pools_and_shapes_are_those_of_pytorch() {
    let _turn = accelerate_testkit::turn();
    let options = MaxPool2dOptions {
        stride: Some([2, 2]),
        padding: [1, 1],
        ..Default::default()
    };
    check("max_pool2d", &MaxPool2d::new([3, 3], options));
    let options = MaxPool2dOptions {
        dilation: [2, 1],
        ceil_mode: true,
        ..Default::default()
    };
    check("max_pool2d_ceil", &MaxPool2d::new([2, 3], options));
    let options = AvgPool2dOptions {
        stride: Some([2, 2]),
        padding: [1, 1],
        ..Default::default()
    };
    check("avg_pool2d", &AvgPool2d::new([3, 3], options));
    let options = AvgPool2dOptions {
        padding: [1, 1],
        ceil_mode: true,
        count_include_pad: false,
        ..Default::default()
    };
    check("avg_pool2d_no_pad", &AvgPool2d::new([2, 3], options));
    let options = AvgPool2dOptions {
        divisor_override: NonZeroI64::new(3),
        ..Default::default()
    };
    check("avg_pool2d_divisor", &AvgPool2d::new([2, 2], options));
    check(
        "adaptive_avg_pool2d",
        &AdaptiveAvgPool2d::new([Some(3), None]),
    );
    check("flatten", &Flatten::default());
    check("flatten_inner", &Flatten::new(1, 2));
}

#[test]
fn first_values_are_those_of_pytorch() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded();
    let factory = Factory::default();
    let seed = || tch::manual_seed(recorded["seed"].as_i64().unwrap());
    let compare = |name: &str, layer: &dyn Module| {
        let expected = &recorded["fresh"][name];
        for (member, parameter) in layer.named_parameters() {
            let found: Vec<f32> = Vec::try_from(parameter.tensor().detach().reshape([-1])).unwrap();
            let expected = list(&expected[&member], |number| number.as_f64().unwrap() as f32);
            assert_eq!(found, expected, "{name} {member}");
        }
        for (member, buffer) in layer.named_buffers() {
            assert_close(&member, buffer.tensor(), &expected[&member]);
        }
    };
    seed();
    let options = Conv1dOptions {
        groups: 2,
        ..Default::default()
    };
    compare("conv1d", &Conv1d::new(4, 2, [3], options, &factory)?);
    seed();
    let layer = Conv2d::new(2, 3, [2, 1], Conv2dOptions::default(), &factory)?;
    compare("conv2d", &layer);
    let layer = BatchNorm2d::new(2, BatchNormOptions::default(), &factory)?;
    compare("batch_norm2d", &layer);
    Ok(())
}

#[test]
fn sequences_run_their_layers_in_order() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let layers = [3, 5, 2].map(|outputs| {
        let inputs = match outputs {
            3 => 2,
            5 => 3,
            _ => 5,
        };
        Conv2d::new(
            inputs,
            outputs,
            [1, 1],
            Conv2dOptions::default(),
            &Factory::default(),
        )
    });
    let sequence: SequentialOf<Conv2d> = layers.into_iter().collect::<Result<_>>()?;
    let image = filled(&[1, 2, 3, 3], 1, 0.0);
    assert_eq!(sequence.call(&image)?.size(), [1, 2, 3, 3]);
    assert_eq!(sequence.class_name(), "Sequential");
    let names: Vec<String> = sequence
        .named_parameters()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names[..3], ["0.weight", "0.bias", "1.weight"]);
    assert_eq!(Identity::new().call(&image)?, image);
    Ok(())
}

#[test]
fn what_does_not_fit_is_told() -> Result<()> {
    let _turn = accelerate_testkit::turn();
    let factory = Factory::default();
    let conv = |inputs, outputs, options: Conv2dOptions| {
        let layer = Conv2d::new(inputs, outputs, [3, 3], options, &factory);
        layer.unwrap_err().to_string()
    };
    let plain = Conv2dOptions::default();
    let groups = |groups| Conv2dOptions { groups, ..plain };
    assert!(conv(4, 6, groups(4)).contains("4 groups divide"));
    assert!(conv(4, 6, groups(0)).contains("at least one group"));
    let same = Conv2dOptions {
        stride: [2, 1],
        padding: ConvPadding::Same,
        ..plain
    };
    assert!(conv(4, 6, same).contains("stride of 1 beside `ConvPadding::Same`"));

    let norm = BatchNorm2d::new(4, BatchNormOptions::default(), &factory)?;
    let refused = |shape: &[i64]| norm.call(filled(shape, 1, 0.0)).unwrap_err().to_string();
    assert!(refused(&[2, 3, 2, 2]).contains("[batch, 4, height, width]"));
    assert!(refused(&[2, 4, 2]).contains("found [2, 4, 2]"));
    assert!(refused(&[1, 4, 1, 1]).contains("more than one value of each channel"));
    norm.train(false);
    assert!(norm.call(filled(&[1, 4, 1, 1], 1, 0.0)).is_ok());
    Ok(())
}
