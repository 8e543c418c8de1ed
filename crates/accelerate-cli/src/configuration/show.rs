//! `accelerate config show`: every setting in force and where it came from.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use accelerate_plan::{
    config::{Value, to_json},
    env::Environment,
    settings::{COMPUTE_ENVIRONMENT, ComputeEnvironment, KeyEntry, Origin, Section, Settings},
};
use clap::Args;
use serde_json::json;

use super::{Configuration, ConfigurationError};
use crate::{args::SettingsFlags, launch::with_detected};

/// What was typed after `accelerate config show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Config file to use instead of the default one
    #[arg(long = "config_file", value_name = "PATH")]
    config_file: Option<PathBuf>,

    /// Show settings that nobody has chosen too
    #[arg(long)]
    all: bool,

    /// Write JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: SettingsFlags,
}

/// Writes every setting in force and where it came from to stdout.
pub(crate) fn show(args: &ShowArgs) -> Result<ExitCode, ConfigurationError> {
    let env = Environment::from_process();
    let configuration = Configuration::read(&args.settings.0, args.config_file.as_deref(), &env)?;
    configuration.tell();
    let settings = with_detected(&configuration, &env)?;
    let rows = rows(&settings, args.all);
    let text = match args.json {
        true => as_json(&rows),
        false => as_table(&rows),
    };
    // A closed pipe is the reader's wish.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// One setting that is shown.
pub(crate) struct Row<'a> {
    pub(crate) entry: &'static KeyEntry,
    pub(crate) value: Value,
    pub(crate) origin: &'a Origin,
}

/// The settings that matter: those somebody chose, those of the top level, or all of them.
pub(crate) fn rows(settings: &Settings, all: bool) -> Vec<Row<'_>> {
    let is_sagemaker =
        settings.get(&COMPUTE_ENVIRONMENT) == Some(ComputeEnvironment::AmazonSagemaker);
    settings
        .iter()
        .filter(|(entry, ..)| entry.section != Section::SageMaker || is_sagemaker)
        .filter(|(entry, ..)| is_sagemaker || entry.section != Section::SageMaker)
        .filter_map(|(entry, value, origin)| {
            Some(Row {
                entry,
                value: value?,
                origin,
            })
        })
        .filter(|row| all || row.origin != &Origin::Default || is_always_shown(row.entry))
        .collect()
}

fn is_always_shown(entry: &KeyEntry) -> bool {
    matches!(entry.section, Section::Top) && !entry.name.starts_with("tpu_")
}

fn as_table(rows: &[Row<'_>]) -> String {
    let names: Vec<_> = rows.iter().map(|row| full_name(row.entry)).collect();
    let values: Vec<_> = rows.iter().map(|row| shown(&row.value)).collect();
    let width = |texts: &[String]| {
        texts
            .iter()
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0)
    };
    let (name_width, value_width) = (width(&names), width(&values).min(40));
    let lines = rows
        .iter()
        .zip(names.iter().zip(&values))
        .map(|(row, (name, value))| {
            format!("{name:name_width$}  {value:value_width$}  {}\n", row.origin)
        });
    lines.collect()
}

fn as_json(rows: &[Row<'_>]) -> String {
    let entries = rows.iter().map(|row| {
        let (kind, place) = match row.origin {
            Origin::Flag(flag) => ("flag", flag.clone()),
            Origin::Variable(name) => ("variable", (*name).to_owned()),
            Origin::File { .. } => ("file", row.origin.to_string()),
            Origin::Detected(what) => ("detected", what.clone()),
            Origin::Default => ("default", String::new()),
        };
        let value = json!({"value": to_json(&row.value), "origin": kind, "from": place});
        (full_name(row.entry), value)
    });
    let map: serde_json::Map<_, _> = entries.collect();
    format!("{:#}\n", serde_json::Value::Object(map))
}

/// The name with its section in front.
fn full_name(entry: &KeyEntry) -> String {
    match entry.section.key() {
        Some(section) => format!("{section}.{}", entry.name),
        None => entry.name.to_owned(),
    }
}

/// A value as a config file has it, on one line.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => to_json(other).to_string(),
    }
}
