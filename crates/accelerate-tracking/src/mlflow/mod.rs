//! MLflow: a folder, or a server.

mod file_store;
mod key;
#[cfg(feature = "network")]
mod rest;
mod settings;

use std::any::Any;

use self::file_store::FileStore;
use self::key::is_key;
use self::settings::{RunSettings, Target};
use crate::clock::unix_millis;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::file_name::safe;
use crate::media::{Image, Table};
use crate::notice::Once;
use crate::settings::flatten;
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};

#[cfg(feature = "network")]
pub(crate) use rest::connect;

/// Its name.
pub(crate) const NAME: &str = "mlflow";
/// The longest value of a parameter that servers take.
const LONGEST_PARAM: usize = 6000;

/// Whether the variables name a server.
pub(crate) fn is_remote(environment: &Environment) -> bool {
    environment
        .get("MLFLOW_TRACKING_URI")
        .is_some_and(|uri| uri.starts_with("http://") || uri.starts_with("https://"))
}

/// Logs to MLflow: into the folder `mlruns`, or to the server that `MLFLOW_TRACKING_URI` names.
///
/// The project is the experiment. Options at the start: `logging_dir` (the place of artifacts of a new
/// experiment), `run_id`, `tags`, `nested_run`, `run_name`, `description`; the variables
/// `MLFLOW_EXPERIMENT_NAME`, `MLFLOW_RUN_ID`, `MLFLOW_NESTED_RUN` and `MLFLOW_TAGS` win over them. A value
/// that is no number is left out, and reported once; so is a parameter that is too long. Pictures
/// and tables become artifacts.
///
/// # Source
/// `accelerate.tracking.MLflowTracker`. Differs: nested settings are flattened.
#[derive(Debug, Default)]
pub struct MlFlow {
    store: Option<Store>,
    refused: Once,
    artifacts: u64,
}

#[derive(Debug)]
enum Store {
    Files(FileStore),
    #[cfg(feature = "network")]
    Server(crate::delivery::Delivery),
}

/// A value of a metric at a step.
#[derive(Debug, Clone, PartialEq)]
struct Metric {
    key: String,
    value: f64,
    timestamp: i64,
    step: i64,
}

impl MlFlow {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a file as an artifact.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::Io`] if it cannot be kept.
    pub fn log_artifact(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let parts: Vec<String> = path.split('/').map(safe).collect();
        self.store()?.artifact(&parts.join("/"), bytes)
    }

    fn store(&mut self) -> Result<&mut Store> {
        self.store.as_mut().ok_or(Error::NotRunning { name: NAME })
    }

    /// Whether the service takes this name; said once if not.
    fn takes(&mut self, key: &str) -> bool {
        let takes = is_key(key);
        if !takes && self.refused.is_new(key) {
            tracing::warn!(
                "`mlflow` takes names of at most 250 letters, digits, `_`, `-`, `.`, `/` and spaces: `{key}` \
                 is left out there"
            );
        }
        takes
    }
}

impl Store {
    fn metrics(&mut self, metrics: &[Metric]) -> Result<()> {
        match self {
            Self::Files(store) => store.metrics(metrics),
            #[cfg(feature = "network")]
            Self::Server(delivery) => delivery.record(&rest::metrics_record(metrics)),
        }
    }

    fn params(&mut self, params: &[(String, String)]) -> Result<()> {
        match self {
            Self::Files(store) => store.params(params),
            #[cfg(feature = "network")]
            Self::Server(delivery) => delivery.record(&rest::params_record(params)),
        }
    }

    fn artifact(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Files(store) => store.artifact(path, bytes),
            #[cfg(feature = "network")]
            Self::Server(delivery) => {
                let ending = path.rsplit_once('.').map_or("bin", |(_, ending)| ending);
                let file = delivery.file(ending, bytes)?;
                delivery.record(&rest::artifact_record(path, &file))
            }
        }
    }
}

impl Tracker for MlFlow {
    fn name(&self) -> &str {
        NAME
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let settings = RunSettings::new(run)?;
        self.store = Some(match Target::of(&run.environment)? {
            Target::Folder(folder) => Store::Files(FileStore::start(&folder, &settings)?),
            #[cfg(feature = "network")]
            Target::Server(uri) => Store::Server(rest::start(&uri, &settings, run)?),
            #[cfg(not(feature = "network"))]
            Target::Server(_) => {
                return Err(Error::Unavailable {
                    name: NAME,
                    needs: "the feature `network` for a server".to_owned(),
                });
            }
        });
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        self.store()?;
        let mut params = Vec::new();
        for (name, value) in flatten(values, ".").values {
            let text = value.python_text();
            let length = text.chars().count();
            if length > LONGEST_PARAM {
                tracing::warn!(
                    "`mlflow` takes no parameter longer than {LONGEST_PARAM} characters: `{name}` with \
                     {length} is left out there"
                );
            } else if self.takes(&name) {
                params.push((name, text));
            }
        }
        self.store()?.params(&params)
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        self.store()?;
        let timestamp = unix_millis();
        let mut metrics = Vec::with_capacity(values.len());
        for (name, value) in values.iter() {
            let Some(number) = value.as_number() else {
                self.refused.value(NAME, name, value);
                continue;
            };
            if self.takes(name) {
                metrics.push(Metric {
                    key: name.to_owned(),
                    value: number,
                    timestamp,
                    step: step.unwrap_or(0),
                });
            }
        }
        if metrics.is_empty() {
            return Ok(());
        }
        self.store()?.metrics(&metrics)
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        for (name, images) in images {
            for image in images {
                let path = self.artifact_path("images", name, step, "png");
                let png = image.to_png()?;
                self.store()?.artifact(&path, &png)?;
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
        let path = self.artifact_path("tables", name, step, "json");
        let text = table.to_json().to_string();
        self.store()?.artifact(&path, text.as_bytes())
    }

    fn finish(&mut self) -> Result<()> {
        match self.store.take() {
            None => Ok(()),
            Some(Store::Files(store)) => store.finish(),
            #[cfg(feature = "network")]
            Some(Store::Server(mut delivery)) => {
                delivery.record(&rest::end_record())?;
                delivery.finish()
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl MlFlow {
    fn artifact_path(&mut self, kind: &str, name: &str, step: Option<i64>, ending: &str) -> String {
        let number = self.artifacts;
        self.artifacts += 1;
        let step = step.map_or_else(String::new, |step| format!("step_{step}_"));
        format!("{kind}/{}/{step}{number:04}.{ending}", safe(name))
    }
}

/// A text option.
fn text_option(options: &Values, name: &str) -> Option<String> {
    options
        .get(name)
        .and_then(Value::as_text)
        .map(str::to_owned)
}
