//! Every model that was measured with the original has the same size here.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::*;

#[derive(Deserialize)]
struct Case {
    config: Map<String, Value>,
    architecture: Option<String>,
    #[serde(alias = "total_bytes_float32")]
    total_bytes: u64,
    #[serde(alias = "largest_layer_bytes_float32")]
    largest_layer_bytes: u64,
    largest_layers: Vec<String>,
    parameters: Option<u64>,
    built: Option<String>,
}

#[derive(Deserialize)]
struct Recording {
    cases: Vec<Case>,
}

fn check(case: &Case) -> Result<(), String> {
    let config = Config::from_object("config.json", case.config.clone());
    let architecture = match &case.architecture {
        Some(class) => Architecture::Class(class.clone()),
        None => Architecture::Base,
    };
    let skeleton = build(&config, &architecture).map_err(|error| error.to_string())?;
    let skeleton = skeleton.ok_or("unknown type")?;
    let largest = skeleton.largest_layer();
    let names: Vec<&str> = largest.layers.iter().map(|l| l.name.as_str()).collect();
    let expect = |what: &str, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: found {found}, expected {expected}")),
    };
    expect("total", skeleton.root.bytes(), case.total_bytes)?;
    expect("largest", largest.bytes, case.largest_layer_bytes)?;
    if let Some(parameters) = case.parameters {
        expect("parameters", skeleton.parameters(false), parameters)?;
    }
    if names != case.largest_layers {
        return Err(format!(
            "found {names:?}, expected {:?}",
            case.largest_layers
        ));
    }
    match &case.built {
        Some(class) if *class != skeleton.root.class => Err(format!("class {class}")),
        _ => Ok(()),
    }
}

fn check_all(cases: &[Case]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let error = check(case).err()?;
            let config = Value::Object(case.config.clone());
            let class = case.architecture.as_deref().unwrap_or("base");
            Some(format!("{class}: {error}\n  {config}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_models() {
    let cases = include_str!("../../../tests/fixtures/estimate_golden.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    assert_eq!(cases.len(), 16);
    check_all(&cases);
}

#[test]
fn the_recorded_models() {
    let recording = include_str!("../../../../../tests/parity/fixtures/estimate_memory.json");
    let recording: Recording = serde_json::from_str(recording).unwrap();
    assert!(recording.cases.len() >= 80);
    let covers = |family: &&Family| {
        let type_of = |case: &Case| case.config["model_type"] == family.model_type;
        recording.cases.iter().any(type_of) || family.model_type == "camembert"
    };
    assert!(FAMILIES.iter().all(covers));
    check_all(&recording.cases);
}

fn config(json: &str) -> Config {
    Config::from_object("config.json", serde_json::from_str(json).unwrap())
}

#[test]
fn tied_weights_are_counted_once_where_asked() {
    let gpt2 = config(r#"{"model_type": "gpt2"}"#);
    let class = Architecture::Class("GPT2LMHeadModel".to_owned());
    let skeleton = build(&gpt2, &class).unwrap().unwrap();
    assert_eq!(skeleton.parameters(true), 124_439_808);
    assert_eq!(skeleton.parameters(false), 124_439_808 + 50257 * 768);
}

#[test]
fn the_class_is_the_base_unless_something_else_is_asked_for() {
    let class = |json: &str, architecture| {
        let skeleton = build(&config(json), &architecture).unwrap().unwrap();
        skeleton.root.class.into_owned()
    };
    let bert = r#"{"model_type": "bert", "architectures": ["BertForMaskedLM"]}"#;
    assert_eq!(class(bert, Architecture::Base), "BertModel");
    assert_eq!(class(bert, Architecture::Config), "BertForMaskedLM");
    let mapped = r#"{"model_type": "gpt2", "auto_map": {"AutoModelForCausalLM": "m.M"}}"#;
    assert_eq!(class(mapped, Architecture::Base), "GPT2LMHeadModel");
}

#[test]
fn an_unknown_class_is_told_with_the_known_ones() {
    let class = Architecture::Class("BertForAll".to_owned());
    let error = build(&config(r#"{"model_type": "bert"}"#), &class).unwrap_err();
    let EstimateError::UnknownClass { known, .. } = error else {
        panic!("{error}")
    };
    assert!(known.contains(&"BertForPreTraining"));
    let unknown = config(r#"{"model_type": "nobody"}"#);
    assert!(build(&unknown, &Architecture::Base).unwrap().is_none());
}

#[test]
fn senseless_sizes_are_refused() {
    let refused = |json: &str| build(&config(json), &Architecture::Base).is_err();
    assert!(refused(
        r#"{"model_type": "llama", "num_attention_heads": 0}"#
    ));
    assert!(refused(
        r#"{"model_type": "bert", "num_hidden_layers": 100000}"#
    ));
    let huge = r#"{"model_type": "bert", "vocab_size": 2147483648, "hidden_size": 2147483648}"#;
    assert!(matches!(
        build(&config(huge), &Architecture::Base),
        Err(EstimateError::TooLarge { path }) if path == Path::new("config.json")
    ));
}

#[test]
fn every_class_of_every_family_is_built() {
    for family in FAMILIES {
        for (class, _) in family.classes {
            let json = format!(r#"{{"model_type": "{}"}}"#, family.model_type);
            let architecture = Architecture::Class((*class).to_owned());
            let skeleton = build(&config(&json), &architecture).unwrap().unwrap();
            assert!(skeleton.root.bytes() > 0 && skeleton.root.class == *class);
        }
    }
}
