//! Weights & Biases: a file that `wandb sync` reads, or its service.

mod datastore;
mod history;
mod media;
mod offline;
#[cfg(feature = "network")]
mod online;
mod run_settings;

use std::any::Any;

use self::history::{History, Row, json_text};
use self::offline::Offline;
use self::run_settings::{Mode, RunSettings};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::media::{Image, Table};
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};

#[cfg(feature = "network")]
pub(crate) use online::connect;

/// Its name.
pub(crate) const NAME: &str = "wandb";

/// Whether it can work: offline, or with a key.
pub(crate) fn is_available(environment: &Environment) -> bool {
    match Mode::of(environment) {
        Mode::Disabled | Mode::Offline => true,
        Mode::Online => cfg!(feature = "network") && run_settings::api_key(environment).is_some(),
    }
}

/// Logs to Weights & Biases.
///
/// The name given to `init_trackers` is the project. With `WANDB_MODE=offline` it writes a folder that
/// `wandb sync` sends later; online it needs `WANDB_API_KEY` or a login in `~/.netrc`. Options at the start,
/// each of which wins over the service's variable: `name`, `id`, `entity`, `group`, `job_type`, `notes`,
/// `tags`, `mode`. Steps must not decrease: values of a lower step are dropped with a warning. Values of
/// one step become one row, which is written when the next step begins.
///
/// # Source
/// `accelerate.tracking.WandBTracker`.
#[derive(Debug, Default)]
pub struct Wandb {
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    sink: Sink,
    history: History,
    media: u64,
}

/// Where a run goes.
#[derive(Debug)]
enum Sink {
    /// Nowhere.
    Disabled,
    File(Offline),
    #[cfg(feature = "network")]
    Service(online::Online),
}

impl Sink {
    fn config(&mut self, values: &Values) -> Result<()> {
        match self {
            Self::Disabled => Ok(()),
            Self::File(file) => file.config(values),
            #[cfg(feature = "network")]
            Self::Service(service) => service.config(values),
        }
    }

    fn row(&mut self, row: &Row) -> Result<()> {
        match self {
            Self::Disabled => Ok(()),
            Self::File(file) => file.history(row),
            #[cfg(feature = "network")]
            Self::Service(service) => service.history(row),
        }
    }

    /// Keeps a file of the run.
    fn file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Disabled => Ok(()),
            Self::File(file) => file.file(path, bytes),
            #[cfg(feature = "network")]
            Self::Service(service) => service.file(path, bytes),
        }
    }

    fn finish(self, summary: &Values) -> Result<()> {
        match self {
            Self::Disabled => Ok(()),
            Self::File(file) => file.finish(summary),
            #[cfg(feature = "network")]
            Self::Service(service) => service.finish(),
        }
    }
}

impl Wandb {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder of an offline run, once it has begun.
    #[must_use]
    pub fn folder(&self) -> Option<&std::path::Path> {
        match &self.run.as_ref()?.sink {
            Sink::File(file) => Some(file.folder()),
            _ => None,
        }
    }

    fn run(&mut self) -> Result<&mut Run> {
        self.run.as_mut().ok_or(Error::NotRunning { name: NAME })
    }
}

impl Run {
    fn log(&mut self, values: &Values, step: Option<i64>) -> Result<()> {
        for row in self.history.log(values, step) {
            self.sink.row(&row)?;
        }
        Ok(())
    }

    /// A name for a file of media that no other has.
    fn media_step(&mut self, step: Option<i64>) -> String {
        self.media += 1;
        format!("{}_{:06}", step.unwrap_or(self.history.step()), self.media)
    }
}

impl Tracker for Wandb {
    fn name(&self) -> &str {
        NAME
    }

    fn main_process_only(&self) -> bool {
        true
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let settings = RunSettings::new(run);
        let sink = match settings.mode {
            Mode::Disabled => Sink::Disabled,
            Mode::Offline => Sink::File(Offline::create(&settings, &run.environment)?),
            #[cfg(feature = "network")]
            Mode::Online => Sink::Service(online::Online::start(&settings, run)?),
            #[cfg(not(feature = "network"))]
            Mode::Online => {
                return Err(Error::Unavailable {
                    name: NAME,
                    needs: "the feature `network`, or `WANDB_MODE=offline`".to_owned(),
                });
            }
        };
        self.run = Some(Run {
            sink,
            history: History::new(),
            media: 0,
        });
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        self.run()?.sink.config(values)
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        self.run()?.log(values, step)
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        let run = self.run()?;
        let mut values = Values::new();
        for (name, images) in images {
            let mut paths = Vec::new();
            for image in images {
                let path = media::image_path(name, &run.media_step(step));
                run.sink.file(&path, &image.to_png()?)?;
                paths.push(path);
            }
            values.insert(name.as_str(), media::images(images, &paths));
        }
        run.log(&values, step)
    }

    fn log_table(
        &mut self,
        name: &str,
        table: &Table,
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        let run = self.run()?;
        let path = media::table_path(name, &run.media_step(step));
        let rows: Vec<Value> = table.rows().iter().cloned().map(Value::List).collect();
        let columns: Vec<Value> = table
            .columns()
            .iter()
            .map(|name| Value::from(name.as_str()))
            .collect();
        let content = Values::new().with("columns", columns).with("data", rows);
        let text = json_text(&Value::Map(content));
        run.sink.file(&path, text.as_bytes())?;
        let values = Values::from([(name, media::table(table, &path, text.as_bytes()))]);
        run.log(&values, step)
    }

    fn finish(&mut self) -> Result<()> {
        let Some(mut run) = self.run.take() else {
            return Ok(());
        };
        if let Some(row) = run.history.flush() {
            run.sink.row(&row)?;
        }
        run.sink.finish(run.history.summary())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
