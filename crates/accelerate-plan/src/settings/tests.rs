use std::collections::HashSet;

use super::*;
use crate::{MixedPrecision, Result, config::Value, env::Environment};

fn layer(pairs: &[(&dyn AnyKey, Value)], origin: &Origin) -> Layer {
    let mut layer = Layer::default();
    for (key, value) in pairs {
        layer.give(*key, value, origin.clone()).unwrap();
    }
    layer
}

#[test]
fn names_are_unique_within_a_record_and_defaults_are_allowed() {
    let mut names = HashSet::new();
    for key in TABLE {
        let entry = key.entry();
        let record = entry.section == Section::SageMaker;
        for name in entry.aliases.iter().chain([&entry.name]) {
            assert!(names.insert((record, *name)), "{name} stands twice");
        }
        if let Some(default) = entry.default {
            assert!(key.canonical(&default.into()).is_some(), "{}", entry.name);
        }
        assert!(!entry.meaning.is_empty(), "{}", entry.name);
    }
}

#[test]
fn a_setting_and_its_variable_have_the_same_type() -> Result<()> {
    for key in TABLE {
        let entry = key.entry();
        let (Some(default), Some(variable)) = (entry.default, entry.variable) else {
            continue;
        };
        let value = key.canonical(&default.into());
        let text = value.as_ref().and_then(|value| key.export(value));
        let (_, text) = text.unwrap();
        let env = Environment::from_pairs([(variable, text.as_str())]);
        assert_eq!(key.read_env(&env)?, value, "{variable}={text}");
    }
    Ok(())
}

/// Four sources and six keys: every way in which they can meet.
#[test]
fn flag_beats_variable_beats_file_beats_machine_beats_default() {
    let keys: [(&dyn AnyKey, [Value; 4]); 6] = [
        (&NUM_PROCESSES, [2, 3, 4, 5].map(Value::from)),
        (
            &MIXED_PRECISION,
            ["bf16", "fp16", "fp8", "no"].map(Value::from),
        ),
        (&MAIN_PROCESS_PORT, [1, 2, 3, 4].map(Value::from)),
        (&DEBUG, [true, false, true, false].map(Value::from)),
        (&FSDP_MIN_NUM_PARAMS, [10, 20, 30, 40].map(Value::from)),
        (&GRADIENT_CLIPPING, [0.5, 1.0, 1.5, 2.0].map(Value::from)),
    ];
    let path = std::sync::Arc::new("c.yaml".into());
    let origins = [
        Origin::Flag("--it".to_owned()),
        Origin::Variable("IT"),
        Origin::File { path, line: 7 },
        Origin::Detected("by looking".to_owned()),
    ];
    for present in 0_u8..16 {
        let says = |source: usize| present & (1 << source) != 0;
        let layers = (0..4).filter(|source| says(*source)).map(|source| {
            let pairs: Vec<_> = keys
                .iter()
                .map(|(key, v)| (*key, v[source].clone()))
                .collect();
            layer(&pairs, &origins[source])
        });
        let settings = Settings::resolve(layers);
        let first = (0..4).find(|source| says(*source));
        for (key, values) in &keys {
            let (_, value, origin) = settings
                .iter()
                .find(|(entry, ..)| entry.name == key.entry().name)
                .unwrap();
            match first {
                Some(source) => {
                    assert_eq!(value.as_ref(), Some(&values[source]));
                    assert_eq!(origin, &origins[source]);
                }
                None => {
                    let default = key.entry().default.map(Value::from);
                    assert_eq!(value, default.and_then(|text| key.canonical(&text)));
                    assert_eq!(origin, &Origin::Default);
                }
            }
        }
    }
}

#[test]
fn a_truth_value_of_yaml_stands_for_the_words_that_it_was_read_from() {
    assert_eq!(
        MIXED_PRECISION.typed(&false.into()),
        Some(MixedPrecision::No)
    );
    assert_eq!(
        DISTRIBUTED_TYPE.typed(&false.into()),
        Some(DistributedType::No)
    );
    assert_eq!(DOWNCAST_BF16.typed(&"no".into()), Some(false));
    assert_eq!(NUM_PROCESSES.typed(&"8".into()).map(|n| n.get()), Some(8));
    assert_eq!(NUM_PROCESSES.typed(&Value::Int(0)), None);
    assert_eq!(NUM_PROCESSES.typed(&Value::Bool(true)), None);
}

#[test]
fn old_spellings_are_read() {
    assert_eq!(
        DISTRIBUTED_TYPE.typed(&"TPU".into()),
        Some(DistributedType::Xla)
    );
    assert_eq!(
        FSDP_SHARDING_STRATEGY.typed(&Value::Int(5)),
        Some(ShardingStrategy::HybridShardZero2)
    );
    assert_eq!(
        DYNAMO_BACKEND.typed(&"torhchxla_trace_once".into()),
        Some(DynamoBackend::TorchxlaTraceOnce)
    );
}

#[test]
fn linear_precision_is_read_in_every_form_that_was_ever_written() {
    let expected = |fprop, dgrad, wgrad| {
        Some(OverrideLinearPrecision {
            fprop,
            dgrad,
            wgrad,
        })
    };
    let read = |value: Value| FP8_OVERRIDE_LINEAR_PRECISION.typed(&value);
    assert_eq!(read(Value::Bool(true)), expected(true, true, true));
    assert_eq!(
        read("(false, true, false)".into()),
        expected(false, true, false)
    );
    assert_eq!(read("no,yes,1".into()), expected(false, true, true));
    let list = vec![Value::Bool(true), Value::Bool(false), Value::Bool(false)];
    assert_eq!(read(Value::List(list)), expected(true, false, false));
    assert_eq!(read("true,false".into()), None);
}

#[test]
fn lists_lose_their_empty_items() {
    let blank = Value::List(vec!["".into()]);
    assert_eq!(TPU_VM.typed(&blank), Some(Vec::new()));
    let two = Value::List(vec!["a".into(), "b,c".into()]);
    assert_eq!(
        TPU_VM.typed(&two),
        Some(vec!["a".to_owned(), "b,c".to_owned()])
    );
}

#[test]
fn a_wrong_value_names_the_setting_its_source_and_what_is_allowed() {
    let mut layer = Layer::default();
    let origin = Origin::Flag("--num_machines".to_owned());
    let error = layer
        .give(&NUM_MACHINES, &"two".into(), origin)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`num_machines` is `two`: expected a whole number, at least 1 (flag `--num_machines`)"
    );
}

#[test]
fn spellings_for_processes_are_those_that_the_original_writes() {
    let settings = Settings::resolve([layer(
        &[
            (&FSDP_RESHARD_AFTER_FORWARD, "FULL_SHARD".into()),
            (&FSDP_OFFLOAD_PARAMS, true.into()),
            (&FP8_BACKEND, "te".into()),
        ],
        &Origin::Flag("--x".to_owned()),
    )]);
    let overlay = settings.export(|entry| matches!(entry.section, Section::Fsdp | Section::Fp8));
    assert_eq!(
        overlay.get("FSDP_RESHARD_AFTER_FORWARD"),
        Some("full_shard")
    );
    assert_eq!(overlay.get("FSDP_OFFLOAD_PARAMS"), Some("true"));
    assert_eq!(overlay.get("FSDP_MIN_NUM_PARAMS"), Some("100000000"));
    assert_eq!(overlay.get("FSDP_AUTO_WRAP_POLICY"), None);
    assert_eq!(overlay.get("ACCELERATE_FP8_BACKEND"), Some("TE"));
    assert_eq!(overlay.get("ACCELERATE_FP8_PAD_INNER_DIM"), Some("1"));
    assert_eq!(
        overlay.get("ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL"),
        Some("False")
    );
}

#[test]
fn auto_is_left_to_others_and_hides_what_a_file_says() {
    let mut flags = Layer::default();
    let origin = Origin::Flag("--gradient_clipping".to_owned());
    flags
        .give(&GRADIENT_CLIPPING, &"auto".into(), origin)
        .unwrap();
    let mut file = Layer::default();
    let origin = Origin::Variable("ACCELERATE_GRADIENT_CLIPPING");
    file.give(&GRADIENT_CLIPPING, &"0.5".into(), origin)
        .unwrap();
    let settings = Settings::resolve([flags, file.clone()]);
    assert_eq!(settings.given(&GRADIENT_CLIPPING), None);
    assert!(
        settings
            .export(|entry| entry.name == "gradient_clipping")
            .is_empty()
    );
    let settings = Settings::resolve([file]);
    assert_eq!(settings.get(&GRADIENT_CLIPPING), Some(0.5));
    let env = Environment::from_pairs([("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "auto")]);
    let layer = Layer::from_env(&env).unwrap();
    assert!(layer.get(GRADIENT_ACCUMULATION_STEPS.name()).is_none());
}
