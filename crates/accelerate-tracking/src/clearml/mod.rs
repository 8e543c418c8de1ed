//! ClearML: its service, or a folder and archive of an offline task.

mod event;
mod hocon;
mod offline;
mod online;

use std::any::Any;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use self::offline::Offline;
use self::online::Online;
use crate::error::{Error, Result};
use crate::local::texts;
use crate::media::{Image, Table};
use crate::notice::Once;
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};

pub(crate) use online::connect;

/// Its name.
pub(crate) const NAME: &str = "clearml";

/// Logs to ClearML.
///
/// The name given to `init_trackers` names project and task; the options `project_name`, `task_name` and
/// `tags`, and then `CLEARML_PROJECT` and `CLEARML_TASK`, say otherwise. It needs
/// `CLEARML_API_ACCESS_KEY` and `CLEARML_API_SECRET_KEY`, or `CLEARML_OFFLINE_MODE=1`. A prefix `train_`,
/// `test_` or `eval_` of a name becomes the series, `train` without one; without a step values stand in
/// the summary. What is no number is left out, and reported once. The settings become the
/// configuration object `General`.
///
/// # Source
/// `accelerate.tracking.ClearMLTracker`. Differs: there is no task of somebody else's in the process, and
/// `~/clearml.conf` is not read.
#[derive(Debug, Default)]
pub struct ClearMl {
    sink: Option<Sink>,
    refused: Once,
}

#[derive(Debug)]
enum Sink {
    Folder(Offline),
    Service(Online),
}

/// What a task is to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct TaskSettings {
    project: String,
    name: String,
    tags: Vec<String>,
}

impl TaskSettings {
    fn new(run: &RunContext) -> Self {
        let named = |option: &str, variable: &str| {
            let given = run.options.get(option).and_then(Value::as_text);
            let name = given.or_else(|| run.environment.get(variable));
            name.unwrap_or(&run.project).to_owned()
        };
        Self {
            project: named("project_name", "CLEARML_PROJECT"),
            name: named("task_name", "CLEARML_TASK"),
            tags: texts(run.options.get("tags")),
        }
    }
}

impl Sink {
    fn events(&mut self, events: &[Json]) -> Result<()> {
        match self {
            Self::Folder(folder) => folder.events(events),
            Self::Service(service) => service.events(events),
        }
    }
}

impl ClearMl {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn sink(&mut self) -> Result<&mut Sink> {
        self.sink.as_mut().ok_or(Error::NotRunning { name: NAME })
    }
}

impl Tracker for ClearMl {
    fn name(&self) -> &str {
        NAME
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let settings = TaskSettings::new(run);
        self.sink = Some(if run.environment.is_on("CLEARML_OFFLINE_MODE") {
            Sink::Folder(Offline::create(settings, &run.environment)?)
        } else {
            Sink::Service(Online::start(settings, run)?)
        });
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        let text = hocon::document(values);
        match self.sink()? {
            Sink::Folder(folder) => folder.configuration(&text),
            Sink::Service(service) => service.configuration(&text),
        }
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        self.sink()?;
        let mut events = Vec::with_capacity(values.len());
        for (name, value) in values.iter() {
            match value.as_number() {
                Some(number) => events.push(event::scalar(name, number, step)),
                None => self.refused.value(NAME, name, value),
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        self.sink()?.events(&events)
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        for (name, images) in images {
            for image in images {
                let png = image.to_png()?;
                match self.sink()? {
                    Sink::Folder(folder) => folder.image(name, &png, step)?,
                    Sink::Service(service) => service.image(name, &png, step)?,
                }
            }
        }
        Ok(())
    }

    fn log_table(
        &mut self,
        name: &str,
        table: &Table,
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        self.sink()?.events(&[event::table(name, table, step)])
    }

    fn finish(&mut self) -> Result<()> {
        match self.sink.take() {
            None => Ok(()),
            Some(Sink::Folder(folder)) => folder.finish(),
            Some(Sink::Service(service)) => service.finish(),
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
