//! A task in a folder, packed at its end.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::TaskSettings;
use super::event;
use crate::environment::Environment;
use crate::error::{Result, io_error};
use crate::file_name::safe;
use crate::identifier;
use crate::run::lines::LineWriter;
use crate::zip;

/// A task that is being written.
#[derive(Debug)]
pub(super) struct Offline {
    id: String,
    folder: PathBuf,
    settings: TaskSettings,
    configuration: Option<String>,
    metrics: LineWriter,
}

impl Offline {
    pub(super) fn create(settings: TaskSettings, environment: &Environment) -> Result<Self> {
        let cache = environment.get("CLEARML_CACHE_DIR").map(PathBuf::from);
        let home = || PathBuf::from(environment.get("HOME").unwrap_or(".")).join(".clearml/cache");
        let id = format!("offline-{}", identifier::hexadecimal());
        let folder = cache.unwrap_or_else(home).join("offline").join(&id);
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        let log = folder.join("log.jsonl");
        fs::write(&log, "").map_err(|source| io_error("write", &log, source))?;
        let offline = Self {
            metrics: LineWriter::open(folder.join("metrics.jsonl"))?,
            id,
            folder,
            settings,
            configuration: None,
        };
        offline.write_task("in_progress")?;
        Ok(offline)
    }

    pub(super) fn configuration(&mut self, text: &str) -> Result<()> {
        self.configuration = Some(text.to_owned());
        self.write_task("in_progress")
    }

    /// One line with all events of a call.
    pub(super) fn events(&mut self, events: &[Json]) -> Result<()> {
        let of_task = |event: &Json| {
            let mut event = event.clone();
            event["task"] = json!(self.id);
            event["method"] = json!("get");
            event
        };
        let events: Vec<Json> = events.iter().map(of_task).collect();
        self.metrics.write(&events).map(drop)
    }

    pub(super) fn image(&mut self, name: &str, png: &[u8], step: Option<i64>) -> Result<()> {
        let (title, series) = event::split(name);
        let (title, series) = (safe(title), safe(series));
        let task = format!("{}.{}", safe(&self.settings.name), self.id);
        let folder = Path::new("data")
            .join(safe(&self.settings.project))
            .join(task);
        let folder = self
            .folder
            .join(folder)
            .join("metrics")
            .join(&title)
            .join(&series);
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        // Pictures of one name and step get numbers of their own.
        let file = (0_u32..)
            .map(|number| match number {
                0 => format!("{title}_{series}_{:08}.png", step.unwrap_or(0)),
                number => format!("{title}_{series}_{:08}_{number}.png", step.unwrap_or(0)),
            })
            .find(|file| !folder.join(file).exists())
            .unwrap_or_default();
        let path = folder.join(&file);
        fs::write(&path, png).map_err(|source| io_error("write", &path, source))?;
        let relative = path
            .strip_prefix(&self.folder)
            .unwrap_or(&path)
            .to_string_lossy();
        let event = event::image(name, &relative, &relative, step);
        self.events(&[event])
    }

    fn write_task(&self, status: &str) -> Result<()> {
        let mut task = json!({
            "id": self.id,
            "name": self.settings.name,
            "project_name": self.settings.project,
            "type": "training",
            "status": status,
            "tags": self.settings.tags,
            "offline_folder": self.folder.to_string_lossy(),
        });
        if let Some(text) = &self.configuration {
            task["configuration"] = json!({
                "General": { "name": "General", "type": "dictionary", "value": text },
            });
        }
        let path = self.folder.join("task.json");
        fs::write(&path, task.to_string()).map_err(|source| io_error("write", &path, source))
    }

    /// Packs the folder as `ID.zip` beside it, for `Task.import_offline_session`.
    pub(super) fn finish(self) -> Result<()> {
        self.write_task("completed")?;
        let root = self.folder.parent().unwrap_or(Path::new("."));
        zip::pack(&self.folder, &root.join(format!("{}.zip", self.id)))
    }
}
