//! `accelerate config show`: every setting in force and where it came from.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use accelerate_plan::{
    config::{Value, inline_json, to_json},
    env::Environment,
    launch::cpu,
    settings::{
        COMPUTE_ENVIRONMENT, CPU, ComputeEnvironment, Given, KeyEntry, Origin, Section, Settings,
        Sourced, USE_CPU,
    },
};
use clap::Args;
use serde_json::json;

use super::{Configuration, ConfigurationError};
use crate::{args::SettingsFlags, launch::with_detected};

/// Stands for a value that must not be shown.
const HIDDEN: &str = "***";

/// What was typed after `accelerate config show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Config file to use instead of the default one
    #[arg(long = "config_file", value_name = "PATH")]
    config_file: Option<PathBuf>,

    /// Show every setting: those of each section and of single starts too, with their defaults
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
    let mut settings = with_detected(&configuration, &env)?;
    settle_device(&mut settings);
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

impl Row<'_> {
    /// The name with its section in front.
    pub(crate) fn name(&self) -> String {
        match self.entry.section.key() {
            Some(section) => format!("{section}.{}", self.entry.name),
            None => self.entry.name.to_owned(),
        }
    }

    /// The value as a config file has it, on one line; a secret stays one.
    pub(crate) fn shown(&self) -> String {
        match self.entry.is_secret {
            true => HIDDEN.to_owned(),
            false => inline_json(&self.value),
        }
    }

    /// Where the value came from, and why nothing reads it if that is so.
    pub(crate) fn remark(&self) -> String {
        match self.entry.no_effect {
            Some(why) => format!("{}; no effect here: {why}", self.origin),
            None => self.origin.to_string(),
        }
    }
}

/// The settings that matter: those somebody chose, those of the top level, or all of them.
pub(crate) fn rows(settings: &Settings, all: bool) -> Vec<Row<'_>> {
    let is_sagemaker =
        settings.get(&COMPUTE_ENVIRONMENT) == Some(ComputeEnvironment::AmazonSagemaker);
    settings
        .iter()
        .filter(|(entry, ..)| entry.section != Section::SageMaker || is_sagemaker)
        .filter(|(entry, ..)| entry.name != CPU.name())
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

/// Lets `use_cpu` say whether the job stays on the CPU, whoever said so: the flag `--cpu` is not
/// shown beside it.
pub(crate) fn settle_device(settings: &mut Settings) {
    let Sourced { value, origin } = cpu(settings);
    if value {
        let value = Value::Bool(value);
        settings.put(USE_CPU.name(), Given { value, origin });
    }
}

fn is_always_shown(entry: &KeyEntry) -> bool {
    matches!(entry.section, Section::Top) && !entry.name.starts_with("tpu_")
}

fn as_table(rows: &[Row<'_>]) -> String {
    let names: Vec<_> = rows.iter().map(Row::name).collect();
    let values: Vec<_> = rows.iter().map(Row::shown).collect();
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
            format!(
                "{name:name_width$}  {value:value_width$}  {}\n",
                row.remark()
            )
        });
    lines.collect()
}

fn as_json(rows: &[Row<'_>]) -> String {
    let entries = rows.iter().map(|row| {
        let (kind, place) = match row.origin {
            Origin::Flag(flag) => ("flag", flag.clone()),
            Origin::Variable(name) => ("variable", (*name).to_owned()),
            Origin::File { .. } => ("file", row.origin.to_string()),
            Origin::Program => ("program", String::new()),
            Origin::Detected(what) => ("detected", what.clone()),
            Origin::Default => ("default", String::new()),
        };
        let value = match row.entry.is_secret {
            true => HIDDEN.into(),
            false => to_json(&row.value),
        };
        let mut said = json!({"value": value, "origin": kind, "from": place});
        if let (Some(why), Some(said)) = (row.entry.no_effect, said.as_object_mut()) {
            said.insert("no_effect".to_owned(), why.into());
        }
        (row.name(), said)
    });
    let map: serde_json::Map<_, _> = entries.collect();
    format!("{:#}\n", serde_json::Value::Object(map))
}
