//! Config files of all shapes and ages.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use accelerate_testkit::parity_python;
use serde_json::{Value, json};

use crate::{original::ask, ours::Home};

/// Files that the original of today does not read, and the word of its error.
const OURS_ONLY: [(&str, &str); 4] = [
    ("fp8_alone.yaml", "distributed_type"),
    ("ipex_cpu.yaml", "ipex_config"),
    ("mpi_intel.yaml", "ipex_config"),
    ("tpu_old_name.yaml", "TPU"),
];

/// Names in sections that have a newer name, after the prefix of the section.
const NEWER: [(&str, &str); 4] = [
    ("fsdp_backward_prefetch_policy", "fsdp_backward_prefetch"),
    ("fp8_amax_history_length", "fp8_amax_history_len"),
    ("fp8_amax_compute_algorithm", "fp8_amax_compute_algo"),
    ("fp8_optimization_level", "fp8_opt_level"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/config")
}

/// A config file among the fixtures.
pub(crate) fn config_file(name: &str) -> String {
    let path = folder().join(name);
    assert!(path.is_file(), "{name}");
    path.display().to_string()
}

fn all() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// What we read from a file: for each setting its value and whether the file has it.
fn ours(home: &Home, name: &str) -> BTreeMap<String, (Value, bool)> {
    let path = config_file(name);
    let done = home.run(&["config", "show", "--config_file", &path, "--json"]);
    let text = done.assert_code(0).stdout;
    let settings: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let pairs = settings.into_iter().map(|(name, setting)| {
        let is_of_file = setting["origin"] == "file";
        (name, (setting["value"].clone(), is_of_file))
    });
    pairs.collect()
}

#[test]
fn files_of_all_ages_are_read() {
    let home = Home::new();
    let names = all();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let settings = ours(&home, &name);
        let has = settings.values().filter(|(_, is_of_file)| *is_of_file);
        assert!(has.count() > 0, "{name}");
    }
}

/// The name that a setting has with us.
fn our_name(name: &str) -> String {
    let Some((section, key)) = name.split_once('.') else {
        return name.to_owned();
    };
    let prefix = match section {
        "fsdp_config" => "fsdp",
        "fp8_config" => "fp8",
        "dynamo_config" => "dynamo",
        _ => "",
    };
    let key = match key.starts_with(prefix) {
        true => key.to_owned(),
        false => format!("{prefix}_{key}"),
    };
    let newer = NEWER.iter().find(|(older, _)| *older == key);
    format!(
        "{section}.{}",
        newer.map_or(key.as_str(), |(_, newer)| newer)
    )
}

/// A value in one spelling: the original keeps whatever stands in the file.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    let text = text
        .to_ascii_lowercase()
        .replace(['(', ')', '[', ']', ' '], "");
    // One truth word stands for three.
    let first = text.split(',').next().unwrap_or_default();
    let text = match text.split(',').all(|item| item == first) {
        true => first.to_owned(),
        false => text,
    };
    match text.as_str() {
        "no" => "false".to_owned(),
        "yes" => "true".to_owned(),
        _ => text,
    }
}

#[test]
fn parity_files_mean_the_same() {
    let Some(python) = parity_python("parity_files_mean_the_same") else {
        return;
    };
    let home = Home::new();
    let names = all();
    let paths: Vec<_> = names.iter().map(|name| config_file(name)).collect();
    let answers = ask(&python, "files", &json!(paths));
    let mut wrong = Vec::new();
    for (name, theirs) in names.iter().zip(answers.as_array().unwrap()) {
        let refused = OURS_ONLY.iter().find(|(file, _)| file == name);
        if let Some((_, word)) = refused {
            let error = theirs["error"].to_string();
            assert!(error.contains(word), "{name}: {theirs}");
            continue;
        }
        assert!(theirs["error"].is_null(), "{name}: {theirs}");
        let theirs = theirs["values"].as_object().unwrap();
        let mut ours = ours(&home, name);
        for (key, value) in theirs {
            // What the file leaves open, the machine decides.
            let ours = ours.remove(&our_name(key));
            let ours = ours.filter(|(_, is_of_file)| *is_of_file || !is_left_open(key, value));
            let ours = ours.map(|(value, _)| value);
            let nothing = value.is_null() || plain(value).is_empty() || *value == json!([""]);
            let same = match &ours {
                Some(ours) => plain(ours) == plain(value) || nothing && plain(ours).is_empty(),
                None => nothing || *value == json!({}) || is_left_open(key, value),
            };
            if !same {
                wrong.push(format!("{name}: {key}: ours {ours:?}, original {value}"));
            }
        }
        let rest = ours.into_iter().filter(|(_, (value, is_of_file))| {
            // The original forgets what is switched off or empty.
            *is_of_file && !matches!(plain(value).as_str(), "false" | "{}")
        });
        wrong.extend(rest.map(|(key, (value, _))| format!("{name}: {key}: only ours, {value}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The original fills these in where the file says nothing; ours are decided at the launch.
fn is_left_open(key: &str, value: &Value) -> bool {
    matches!(
        (key, value.as_i64()),
        ("num_processes", Some(-1 | 1)) | ("machine_rank", Some(0))
    ) || key.starts_with("tpu_use_")
}
