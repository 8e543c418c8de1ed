//! Round trips and everything that can fail to fit.

use std::path::Path;
use std::sync::Arc;

use accelerate_formats::{
    Dict, Dtype, Storage, StoredTensor, TensorData, write_file, write_torch_file,
};
use tch::{Kind, Tensor};

use super::*;
use crate::nn::{Buffer, Factory, Linear, Module, ModuleState, Parameter};
use crate::{Error, Result};

#[derive(Debug, Module)]
struct Model {
    first: Linear,
    tied: Linear,
    count: Buffer,
    scratch: Buffer,
    state: ModuleState,
}

fn model() -> Result<Model> {
    let factory = Factory::default();
    let first = Linear::new(3, 2, &factory)?;
    let mut tied = Linear::without_bias(3, 2, &factory)?;
    tied.weight = first.weight.clone();
    let count = Buffer::new(Tensor::from(5i64));
    let scratch = Buffer::non_persistent(Tensor::from(0i64));
    Ok(Model {
        first,
        tied,
        count,
        scratch,
        state: ModuleState::default(),
    })
}

fn write(path: &Path, tensors: &[(&str, Dtype, &[usize])]) {
    let zeros = [0; 256];
    let data = tensors.iter().map(|(name, dtype, shape)| {
        let bytes = dtype.bits_of(shape).unwrap() / 8;
        TensorData::new(name, *dtype, shape, &zeros[..bytes])
    });
    write_file(path, data, &Metadata::pytorch()).unwrap();
}

#[test]
fn what_is_saved_loads_into_another_model() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let (saved, loaded) = (model()?, model()?);
    save_weights(&saved, &path, &Metadata::new().with("step", "3"))?;
    let weights = Weights::open(folder.path())?;
    let mut names: Vec<&str> = weights.names().collect();
    names.sort_unstable();
    assert_eq!(names, ["count", "first.bias", "first.weight"]);
    let metadata = weights.files()[0].metadata().unwrap();
    assert_eq!(
        (metadata.get("format"), metadata.get("step")),
        (Some("pt"), Some("3"))
    );

    let before = loaded.first.weight.identity();
    let report = load_weights(&loaded, &weights, &LoadOptions::strict())?;
    assert_eq!((report.loaded, report.fits()), (3, true));
    assert_eq!(loaded.tied.weight.dense()?, saved.first.weight.dense()?);
    assert_eq!(loaded.first.weight.identity(), before);
    assert!(loaded.first.weight.requires_grad());
    Ok(())
}

#[test]
fn a_tied_weight_may_stand_under_either_name() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let f32 = Dtype::F32;
    write(
        &path,
        &[
            ("tied.weight", f32, &[2, 3]),
            ("first.bias", f32, &[2]),
            ("count", Dtype::I64, &[]),
        ],
    );
    let model = model()?;
    load_weights(&model, &Weights::open(&path)?, &LoadOptions::strict())?;
    assert_eq!(
        model
            .first
            .weight
            .dense()?
            .abs()
            .sum(Kind::Float)
            .double_value(&[]),
        0.0
    );
    Ok(())
}

#[test]
fn a_torch_file_loads_with_its_views_and_ties() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..6u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let storage = Arc::new(Storage::new(bytes));
    let view = |shape: &[usize], strides: &[usize], offset| {
        let storage = Arc::clone(&storage);
        StoredTensor::strided(
            Dtype::F32,
            shape.to_vec(),
            strides.to_vec(),
            offset,
            storage,
        )
        .unwrap()
    };
    let count = Arc::new(Storage::new(9i64.to_le_bytes()));
    let dict = Dict::new()
        .with("first.weight", view(&[2, 3], &[1, 2], 0))
        .with("tied.weight", view(&[2, 3], &[1, 2], 0))
        .with("first.bias", view(&[2], &[1], 4))
        .with(
            "count",
            StoredTensor::contiguous(Dtype::I64, [], count).unwrap(),
        );
    write_torch_file(folder.path().join("pytorch_model.bin"), &dict.into()).unwrap();
    let model = model()?;
    let report = load_weights(
        &model,
        &Weights::open(folder.path())?,
        &LoadOptions::strict(),
    )?;
    assert_eq!((report.loaded, report.fits()), (4, true));
    let expected = Tensor::from_slice(&[0.0f32, 2.0, 4.0, 1.0, 3.0, 5.0]).view([2, 3]);
    assert_eq!(model.tied.weight.dense()?, expected);
    let bias = model.first.bias.as_ref().unwrap().tensor();
    assert_eq!(*bias, Tensor::from_slice(&[4.0f32, 5.0]));
    Ok(())
}

#[test]
fn a_second_name_loads_into_a_model_that_does_not_tie() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = 1.0f32.to_le_bytes().repeat(6);
    let metadata = Metadata::pytorch().with("tied.weight", "first.weight");
    let tensors = [
        TensorData::new("first.weight", Dtype::F32, &[2, 3], &bytes),
        TensorData::new("first.bias", Dtype::F32, &[2], &bytes[..8]),
        TensorData::new("count", Dtype::I64, &[], &bytes[..8]),
    ];
    write_file(&path, tensors, &metadata).unwrap();
    let mut model = model()?;
    model.tied = Linear::without_bias(3, 2, &Factory::default())?;
    load_weights(&model, &Weights::open(&path)?, &LoadOptions::strict())?;
    assert_eq!(model.tied.weight.dense()?, model.first.weight.dense()?);
    Ok(())
}

#[test]
fn names_of_a_wrapped_model_are_found_and_told() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let f32 = Dtype::F32;
    let wrapped: &[(&str, Dtype, &[usize])] = &[
        ("module._orig_mod.first.weight", f32, &[2, 3]),
        ("module.first.bias", f32, &[2]),
        ("count", Dtype::I64, &[]),
    ];
    write(&path, wrapped);
    let report = load_weights(&model()?, &Weights::open(&path)?, &LoadOptions::strict())?;
    assert_eq!((report.loaded, report.unwrapped.len()), (3, 2));
    // Both names at once: nobody knows which is meant.
    write(&path, &[wrapped, &[("first.bias", f32, &[2])]].concat());
    let error = load_weights(&model()?, &Weights::open(&path)?, &LoadOptions::strict());
    let Err(Error::WeightsDoNotFit { report, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(report.unexpected, ["module.first.bias"]);
    Ok(())
}

#[test]
fn values_are_cast_within_a_family() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let factory = Factory::new(tch::Device::Cpu, Kind::BFloat16);
    let half = Linear::new(4, 4, &factory)?;
    save_weights(&half, &path, &Metadata::new())?;
    let full = Linear::new(4, 4, &Factory::default())?;
    load_weights(&full, &Weights::open(&path)?, &LoadOptions::strict())?;
    assert_eq!(
        full.weight.dense()?,
        half.weight.dense()?.to_kind(Kind::Float)
    );
    Ok(())
}

#[test]
fn everything_that_does_not_fit_is_told_at_once_and_nothing_is_copied() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensors: &[(&str, Dtype, &[usize])] = &[
        ("first.weight", Dtype::F32, &[3, 2]),
        ("count", Dtype::F32, &[]),
        ("other.weight", Dtype::F32, &[1]),
    ];
    write(&path, tensors);
    let model = model()?;
    let before = model.count.tensor().int64_value(&[]);
    let error = load_weights(&model, &Weights::open(&path)?, &LoadOptions::strict()).unwrap_err();
    let text = error.to_string();
    for part in [
        path.to_str().unwrap(),
        "do not fit `Model`",
        "1 missing: `first.bias`",
        "1 unexpected: `other.weight`",
        "2 mismatched: ",
        "`first.weight` (expected [2, 3], found [3, 2])",
        "`count` (expected I64, found F32)",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(model.count.tensor().int64_value(&[]), before);
    let lenient = load_weights(&model, &Weights::open(&path)?, &LoadOptions::lenient());
    assert!(matches!(lenient, Err(Error::WeightsDoNotFit { .. })));
    Ok(())
}

#[test]
fn options_allow_what_they_name() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write(
        &path,
        &[
            ("old.weight", Dtype::F32, &[2, 3]),
            ("step", Dtype::I64, &[]),
        ],
    );
    let rename = |name: &str| {
        name.strip_prefix("old.")
            .map(|rest| format!("first.{rest}"))
    };
    let options = LoadOptions::strict()
        .with_rename(&rename)
        .with_optional("first.bias")
        .with_optional("count");
    let report = load_weights(&model()?, &Weights::open(&path)?, &options)?;
    assert_eq!(report.newly_initialized, ["first.bias", "count"]);
    assert_eq!(report.ignored, ["step"]);
    let report = load_weights(&model()?, &Weights::open(&path)?, &LoadOptions::lenient())?;
    assert_eq!(report.missing, ["first.weight", "first.bias", "count"]);
    // In the order of the file.
    assert_eq!(report.unexpected, ["step", "old.weight"]);
    Ok(())
}

#[test]
fn a_prefix_ends_at_a_dot() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write(
        &path,
        &[
            ("first.weight", Dtype::F32, &[2, 3]),
            ("count", Dtype::I64, &[]),
        ],
    );
    let options = LoadOptions::strict().with_optional("fir");
    assert!(load_weights(&model()?, &Weights::open(&path)?, &options).is_err());
    Ok(())
}

#[test]
fn empty_tensors_make_the_round_trip() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let empty = Linear::without_bias(0, 3, &Factory::default().with_init(crate::nn::Init::Skip))?;
    save_weights(&empty, &path, &Metadata::new())?;
    load_weights(&empty, &Weights::open(&path)?, &LoadOptions::strict())?;
    assert_eq!(Parameter::shape(&empty.weight), [3, 0]);
    Ok(())
}
