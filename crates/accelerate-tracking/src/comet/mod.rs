//! Comet: its service, or an archive that `comet upload` sends later.

mod offline;
mod online;

use std::any::Any;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::offline::Offline;
use self::online::Online;
use crate::clock::unix_millis;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::local::texts;
use crate::media::{Image, Table};
use crate::notice::Once;
use crate::settings::flatten;
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};

pub(crate) use online::connect;

/// Its name.
pub(crate) const NAME: &str = "comet_ml";

/// Logs to Comet.
///
/// The name given to `init_trackers` is the project. With `COMET_API_KEY` it sends to the service; with
/// `COMET_OFFLINE_DIRECTORY` alone it writes an archive there for `comet upload`. Options at the start:
/// `workspace`, `experiment_name`, `tags`, `online`. Numbers become metrics, texts "others" without a
/// step, maps one metric per name; lists are left out. Nested parameters are joined by `|`.
///
/// # Source
/// `accelerate.tracking.CometMLTracker`.
#[derive(Debug, Default)]
pub struct Comet {
    sink: Option<Sink>,
    refused: Once,
}

#[derive(Debug)]
enum Sink {
    Archive(Offline),
    Service(Online),
}

/// What the tracker was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Metric {
        name: String,
        value: Value,
        step: Option<i64>,
        time: i64,
    },
    Parameter {
        name: String,
        value: Value,
        time: i64,
    },
    Other {
        key: String,
        value: Value,
        time: i64,
    },
    Asset {
        name: String,
        kind: String,
        file: String,
        step: Option<i64>,
    },
    Tags(Vec<String>),
    End {
        time: i64,
    },
}

/// What an experiment is to be.
#[derive(Debug, Clone, Default)]
struct ExperimentSettings {
    project: String,
    workspace: Option<String>,
    name: Option<String>,
    tags: Vec<String>,
    offline_folder: Option<PathBuf>,
    online: bool,
}

impl ExperimentSettings {
    fn new(run: &RunContext) -> Self {
        let option = |name: &str, variable: &str| {
            let given = run.options.get(name).and_then(Value::as_text);
            given
                .or_else(|| run.environment.get(variable))
                .map(str::to_owned)
        };
        let has_key = run.environment.get("COMET_API_KEY").is_some();
        Self {
            project: run.project.clone(),
            workspace: option("workspace", "COMET_WORKSPACE"),
            name: option("experiment_name", "COMET_EXPERIMENT_NAME"),
            tags: texts(run.options.get("tags")),
            offline_folder: option("offline_directory", "COMET_OFFLINE_DIRECTORY")
                .map(PathBuf::from),
            online: has_key && run.options.get("online") != Some(&Value::Bool(false)),
        }
    }
}

impl Comet {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn sink(&mut self) -> Result<&mut Sink> {
        self.sink.as_mut().ok_or(Error::NotRunning { name: NAME })
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        match self.sink()? {
            Sink::Archive(archive) => archive.record(record),
            Sink::Service(service) => service.record(record),
        }
    }

    fn asset(
        &mut self,
        name: &str,
        kind: &str,
        ending: &str,
        bytes: &[u8],
        step: Option<i64>,
    ) -> Result<()> {
        match self.sink()? {
            Sink::Archive(_) => Err(Error::Unsupported {
                name: NAME.to_owned(),
                what: "images and tables while it is offline",
            }),
            Sink::Service(service) => {
                let record = Record::Asset {
                    name: format!("{name}.{ending}"),
                    kind: kind.to_owned(),
                    file: service.file(ending, bytes)?,
                    step,
                };
                service.record(&record)
            }
        }
    }
}

impl Tracker for Comet {
    fn name(&self) -> &str {
        NAME
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let settings = ExperimentSettings::new(run);
        self.sink = Some(if settings.online {
            Sink::Service(Online::start(&settings, run)?)
        } else {
            Sink::Archive(Offline::create(&settings)?)
        });
        if !settings.tags.is_empty() {
            self.record(&Record::Tags(settings.tags))?;
        }
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        let time = unix_millis();
        let flat = flatten(values, "|");
        if flat.nested {
            self.record(&Record::Other {
                key: "hasNestedParams".to_owned(),
                value: true.into(),
                time,
            })?;
        }
        for (name, value) in flat.values {
            self.record(&Record::Parameter { name, value, time })?;
        }
        Ok(())
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        self.sink()?;
        let time = unix_millis();
        for (name, value) in flatten_maps(values) {
            let record = match value {
                Value::Text(_) => Record::Other {
                    key: name,
                    value,
                    time,
                },
                Value::Null | Value::List(_) | Value::Map(_) => {
                    self.refused.value(NAME, &name, &value);
                    continue;
                }
                value => Record::Metric {
                    name,
                    value,
                    step,
                    time,
                },
            };
            self.record(&record)?;
        }
        Ok(())
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        for (name, images) in images {
            for image in images {
                self.asset(name, "image", "png", &image.to_png()?, step)?;
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
        let text = table.to_json().to_string();
        self.asset(name, "asset", "json", text.as_bytes(), step)
    }

    fn finish(&mut self) -> Result<()> {
        match self.sink.take() {
            None => Ok(()),
            Some(Sink::Archive(archive)) => archive.finish(),
            Some(Sink::Service(mut service)) => {
                let time = unix_millis();
                service.record(&Record::End { time })?;
                service.finish()
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Values of maps under names of their own; lists stay.
fn flatten_maps(values: &Values) -> Vec<(String, Value)> {
    let mut flat = Vec::new();
    for (name, value) in values.iter() {
        match value {
            Value::Map(inner) => {
                let inner = flatten_maps(inner).into_iter();
                flat.extend(inner.map(|(key, value)| (format!("{name}_{key}"), value)));
            }
            plain => flat.push((name.to_owned(), plain.clone())),
        }
    }
    flat
}

/// The address of the service.
fn base_url(environment: &Environment) -> String {
    let root = environment
        .get("COMET_URL_OVERRIDE")
        .map_or("https://www.comet.com", |url| {
            let url = url.trim_end_matches('/');
            url.strip_suffix("/clientlib").unwrap_or(url)
        });
    format!("{root}/api/rest/v2")
}

#[cfg(test)]
mod tests;
