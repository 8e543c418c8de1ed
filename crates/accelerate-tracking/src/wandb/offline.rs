//! A run in a folder that `wandb sync` sends.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::datastore::Datastore;
use super::history::{Row, json_text};
use super::run_settings::RunSettings;
use crate::clock::{Moment, since_epoch};
use crate::environment::Environment;
use crate::error::{Result, io_error};
use crate::protobuf::Message;
use crate::value::{Value, Values};

/// The oldest client that can read what is written here.
const MIN_CONSUMER: &str = "0.0.1";

/// Fields of `Record`.
mod field {
    pub(super) const NUM: u32 = 1;
    pub(super) const HISTORY: u32 = 2;
    pub(super) const SUMMARY: u32 = 3;
    pub(super) const CONFIG: u32 = 5;
    pub(super) const FILES: u32 = 6;
    pub(super) const RUN: u32 = 17;
    pub(super) const EXIT: u32 = 18;
    pub(super) const HEADER: u32 = 21;
}

/// An offline run that is being written.
#[derive(Debug)]
pub(super) struct Offline {
    folder: PathBuf,
    store: Datastore,
    records: i64,
    started: Duration,
}

impl Offline {
    /// Begins one in `wandb` below `WANDB_DIR`.
    pub(super) fn create(settings: &RunSettings, environment: &Environment) -> Result<Self> {
        let root = Path::new(environment.get("WANDB_DIR").unwrap_or(".")).join("wandb");
        let time = Moment::at(settings.started).compact('_');
        let name = format!("offline-run-{time}-{}", settings.id);
        let folder = root.join(&name);
        for part in ["files", "logs"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(|source| io_error("make", &path, source))?;
        }
        link_latest(&root, &name);
        let store = Datastore::create(folder.join(format!("run-{}.wandb", settings.id)))?;
        let mut offline = Self {
            folder,
            store,
            records: 0,
            started: settings.started,
        };
        let version = Message::new()
            .text(1, env!("CARGO_PKG_VERSION"))
            .text(2, MIN_CONSUMER);
        offline.record(field::HEADER, &Message::new().message(1, &version))?;
        offline.record(field::RUN, &run(settings))?;
        Ok(offline)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Settings keep their nesting: each at the top is one text of JSON.
    pub(super) fn config(&mut self, values: &Values) -> Result<()> {
        let config = values.iter().fold(Message::new(), |config, (name, value)| {
            let item = Message::new().text(1, name).text(16, &json_text(value));
            config.message(1, &item)
        });
        self.record(field::CONFIG, &config)
    }

    pub(super) fn history(&mut self, row: &Row) -> Result<()> {
        let step = Message::new().int(1, row.step);
        let history = items(&row.values).message(2, &step);
        self.record(field::HISTORY, &history)
    }

    /// Keeps a file that is sent with the run.
    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let target = self.folder.join("files").join(path);
        let failed = |source| io_error("write", &target, source);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::write(&target, bytes).map_err(failed)?;
        /// `FileType.MEDIA`
        const MEDIA: i64 = 2;
        let item = Message::new().text(1, path).int(3, MEDIA);
        self.record(field::FILES, &Message::new().message(1, &item))
    }

    pub(super) fn finish(mut self, summary: &Values) -> Result<()> {
        self.record(field::SUMMARY, &items(summary))?;
        let runtime = since_epoch().saturating_sub(self.started);
        let runtime = i64::try_from(runtime.as_secs()).unwrap_or(i64::MAX);
        self.record(field::EXIT, &Message::new().int(1, 0).int(2, runtime))
    }

    fn record(&mut self, kind: u32, content: &Message) -> Result<()> {
        self.records += 1;
        let record = Message::new()
            .int(field::NUM, self.records)
            .message(kind, content);
        self.store.write(&record.into_bytes())
    }
}

/// Items of a history or summary: the way to each value, name by name.
fn items(values: &Values) -> Message {
    fn add(message: Message, way: &mut Vec<String>, value: &Value) -> Message {
        match value {
            Value::Map(inner) if !inner.is_empty() && inner.get("_type").is_none() => {
                inner.iter().fold(message, |message, (name, value)| {
                    way.push(name.to_owned());
                    let message = add(message, way, value);
                    way.pop();
                    message
                })
            }
            plain => {
                let item = way
                    .iter()
                    .fold(Message::new(), |item, name| item.text(2, name));
                message.message(1, &item.text(16, &json_text(plain)))
            }
        }
    }
    values
        .iter()
        .fold(Message::new(), |message, (name, value)| {
            add(message, &mut vec![name.to_owned()], value)
        })
}

fn run(settings: &RunSettings) -> Message {
    let mut run = Message::new().text(1, &settings.id);
    let optional = [
        (2, &settings.entity),
        (6, &settings.group),
        (7, &settings.job_type),
        (8, &settings.name),
        (9, &settings.notes),
    ];
    run = run.text(3, &settings.project);
    for (field, value) in optional {
        if let Some(value) = value {
            run = run.text(field, value);
        }
    }
    for tag in &settings.tags {
        run = run.text(10, tag);
    }
    let seconds = i64::try_from(settings.started.as_secs()).unwrap_or(i64::MAX);
    let started = Message::new()
        .int(1, seconds)
        .int(2, settings.started.subsec_nanos().into());
    run.text(13, &settings.host).message(17, &started)
}

/// Points `latest-run` to the run; where links cannot be made nobody misses it.
fn link_latest(root: &Path, name: &str) {
    #[cfg(unix)]
    {
        let link = root.join("latest-run");
        if link.is_symlink() {
            let _ = fs::remove_file(&link);
        }
        if let Err(error) = std::os::unix::fs::symlink(name, &link) {
            tracing::debug!("cannot make `{}`: {error}", link.display());
        }
    }
    #[cfg(not(unix))]
    let _ = (root, name);
}
