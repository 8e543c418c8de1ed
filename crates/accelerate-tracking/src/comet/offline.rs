//! An experiment as an archive.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::{ExperimentSettings, Record};
use crate::clock::unix_millis;
use crate::error::{Result, io_error};
use crate::identifier;
use crate::run::lines::LineWriter;
use crate::zip;

const MESSAGES: &str = "messages.json";

/// An experiment that is being written. It is a folder until it ends and is packed.
#[derive(Debug)]
pub(super) struct Offline {
    id: String,
    folder: PathBuf,
    messages: LineWriter,
    next_message: u64,
    step: Option<i64>,
    started: i64,
    settings: ExperimentSettings,
    tags: Vec<String>,
}

impl Offline {
    pub(super) fn create(settings: &ExperimentSettings) -> Result<Self> {
        let id = identifier::hexadecimal();
        let root = settings
            .offline_folder
            .clone()
            .unwrap_or_else(|| PathBuf::from("."));
        let folder = root.join(&id);
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        let mut offline = Self {
            messages: LineWriter::open(folder.join(MESSAGES))?,
            id,
            folder,
            next_message: 1,
            step: None,
            started: unix_millis(),
            settings: settings.clone(),
            tags: Vec::new(),
        };
        offline.message(
            "log_other",
            json!({ "key": "offline_experiment", "value": true }),
        )?;
        // Whoever packs the folder of a killed run finds all that belongs in it.
        offline.write_experiment(None)?;
        Ok(offline)
    }

    pub(super) fn record(&mut self, record: &Record) -> Result<()> {
        match record {
            Record::Metric {
                name, value, step, ..
            } => {
                self.set_step(*step)?;
                let metric = json!({
                    "metricName": name, "metricValue": value, "step": self.step, "epoch": null,
                });
                self.message("metric_msg", json!({ "metric": metric }))
            }
            Record::Parameter { name, value, .. } => self.parameter(name, &json!(value)),
            Record::Other { key, value, .. } => {
                self.message("log_other", json!({ "key": key, "value": value }))
            }
            Record::Tags(tags) => {
                self.tags.extend(tags.iter().cloned());
                self.write_experiment(None)
            }
            Record::Asset { .. } | Record::End { .. } => Ok(()),
        }
    }

    /// A step that is set is told by a parameter too.
    fn set_step(&mut self, step: Option<i64>) -> Result<()> {
        if step.is_none() || step == self.step {
            return Ok(());
        }
        self.step = step;
        self.parameter("curr_step", &json!(step))
    }

    fn parameter(&mut self, name: &str, value: &Json) -> Result<()> {
        let param = json!({
            "paramName": name, "paramValue": value, "source": "manual", "step": self.step,
        });
        self.message("parameter_msg", json!({ "param": param }))
    }

    fn message(&mut self, kind: &str, mut payload: Json) -> Result<()> {
        payload["message_id"] = json!(self.next_message);
        payload["local_timestamp"] = json!(unix_millis());
        self.next_message += 1;
        self.messages
            .write(&json!({ "type": kind, "payload": payload }))
            .map(drop)
    }

    fn write_experiment(&self, stopped: Option<i64>) -> Result<()> {
        let experiment = json!({
            "offline_id": self.id,
            "project_name": self.settings.project,
            "workspace": self.settings.workspace,
            "experiment_name": self.settings.name,
            "start_time": self.started,
            "stop_time": stopped,
            "tags": self.tags,
            "resume_strategy": "create",
        });
        let path = self.folder.join("experiment.json");
        fs::write(&path, experiment.to_string()).map_err(|source| io_error("write", &path, source))
    }

    /// Packs the experiment as `ID.zip` and removes its folder.
    pub(super) fn finish(self) -> Result<()> {
        self.write_experiment(Some(unix_millis()))?;
        zip::pack(&self.folder, &self.archive())?;
        fs::remove_dir_all(&self.folder)
            .map_err(|source| io_error("remove", &self.folder, source))
            .inspect(|()| {
                tracing::info!(
                    "send the experiment with `comet upload {}`",
                    self.archive().display()
                );
            })
    }

    fn archive(&self) -> PathBuf {
        let root = self.folder.parent().unwrap_or(Path::new("."));
        root.join(format!("{}.zip", self.id))
    }
}
