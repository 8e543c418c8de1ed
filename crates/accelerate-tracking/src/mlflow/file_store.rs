//! Runs in a folder, as MLflow keeps them itself.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::Metric;
use super::settings::RunSettings;
use crate::clock::unix_millis;
use crate::error::{Result, io_error};
use crate::identifier;
use crate::machine;
use crate::value::{Value, Values};
use crate::yaml;

/// `RunStatus` and `SourceType` as numbers.
const RUNNING: i64 = 1;
const FINISHED: i64 = 3;
const LOCAL: i64 = 4;

/// One run in a folder.
#[derive(Debug)]
pub(super) struct FileStore {
    folder: PathBuf,
    meta: Values,
}

impl FileStore {
    /// Begins a run, or goes on with the one that the settings name.
    pub(super) fn start(root: &Path, settings: &RunSettings) -> Result<Self> {
        let root = std::path::absolute(root).map_err(|source| io_error("find", root, source))?;
        make(&root.join(".trash"))?;
        if !root.join("0").exists() {
            write_experiment(&root, "0", "Default", None)?;
        }
        let experiment = match experiment_of(&root, &settings.experiment)? {
            Some(id) => id,
            None => {
                let id = experiment_id();
                let place = settings.artifact_location.as_deref();
                write_experiment(&root, &id, &settings.experiment, place)?;
                id
            }
        };
        let run_id = settings
            .run_id
            .clone()
            .unwrap_or_else(identifier::hexadecimal);
        let folder = root.join(&experiment).join(crate::file_name::safe(&run_id));
        for name in ["metrics", "params", "tags", "artifacts"] {
            make(&folder.join(name))?;
        }
        let meta = Values::new()
            .with("artifact_uri", file_uri(&folder.join("artifacts")))
            .with("end_time", Value::Null)
            .with("entry_point_name", "")
            .with("experiment_id", experiment)
            .with("lifecycle_stage", "active")
            .with("run_id", run_id.clone())
            .with("run_name", settings.run_name.clone())
            .with("run_uuid", run_id)
            .with("source_name", "")
            .with("source_type", LOCAL)
            .with("source_version", "")
            .with("start_time", unix_millis())
            .with("status", RUNNING)
            .with("tags", Vec::<Value>::new())
            .with("user_id", machine::user());
        let store = Self { folder, meta };
        store.write_meta()?;
        for (name, value) in &settings.tags {
            store.write("tags", name, value)?;
        }
        Ok(store)
    }

    pub(super) fn metrics(&self, metrics: &[Metric]) -> Result<()> {
        each(metrics, |metric| self.metric(metric))
    }

    fn metric(&self, metric: &Metric) -> Result<()> {
        let path = self.folder.join("metrics").join(&metric.key);
        make_parent(&path)?;
        let line = format!(
            "{} {} {}\n",
            metric.timestamp,
            Value::Float(metric.value).python_text(),
            metric.step
        );
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|source| io_error("write to", &path, source))
    }

    pub(super) fn params(&self, params: &[(String, String)]) -> Result<()> {
        each(params, |(name, value)| self.write("params", name, value))
    }

    pub(super) fn artifact(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join("artifacts").join(path);
        make_parent(&path)?;
        fs::write(&path, bytes).map_err(|source| io_error("write", &path, source))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.meta.insert("end_time", unix_millis());
        self.meta.insert("status", FINISHED);
        self.write_meta()
    }

    fn write_meta(&self) -> Result<()> {
        write(&self.folder.join("meta.yaml"), &yaml::document(&self.meta))
    }

    fn write(&self, kind: &str, name: &str, value: &str) -> Result<()> {
        let path = self.folder.join(kind).join(name);
        make_parent(&path)?;
        write(&path, value)
    }
}

/// Writes all of them: one that cannot be written keeps back no other. The first error counts.
fn each<T>(items: &[T], mut write: impl FnMut(&T) -> Result<()>) -> Result<()> {
    let mut ended = Ok(());
    for item in items {
        let written = write(item);
        ended = ended.and(written);
    }
    ended
}

/// 18 digits, as the original makes them.
fn experiment_id() -> String {
    let number = identifier::random() % 900_000_000_000_000_000;
    (number + 100_000_000_000_000_000).to_string()
}

fn write_experiment(root: &Path, id: &str, name: &str, artifacts: Option<&str>) -> Result<()> {
    let folder = root.join(id);
    make(&folder)?;
    let now = unix_millis();
    let place = artifacts.map_or_else(|| file_uri(&folder), str::to_owned);
    let meta = Values::new()
        .with("artifact_location", place)
        .with("creation_time", now)
        .with("experiment_id", id)
        .with("last_update_time", now)
        .with("lifecycle_stage", "active")
        .with("name", name);
    write(&folder.join("meta.yaml"), &yaml::document(&meta))
}

/// The experiment of this name, the first of several.
fn experiment_of(root: &Path, name: &str) -> Result<Option<String>> {
    let entries = fs::read_dir(root).map_err(|source| io_error("look into", root, source))?;
    let mut found: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| named(folder).as_deref() == Some(name))
        .filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned()))
        .collect();
    found.sort();
    if found.len() > 1 {
        tracing::warn!(
            "`mlflow` has {} experiments `{name}`: the first is taken",
            found.len()
        );
    }
    Ok(found.into_iter().next())
}

/// The name of an experiment that is not deleted.
fn named(folder: &Path) -> Option<String> {
    let meta = fs::read_to_string(folder.join("meta.yaml")).ok()?;
    let field = |name: &str| {
        let mut lines = meta.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    if field("lifecycle_stage").is_some_and(|stage| stage != "active") {
        return None;
    }
    let name = field("name")?;
    if name.starts_with('"') {
        return serde_json::from_str(name).ok();
    }
    let quoted = name
        .strip_prefix('\'')
        .and_then(|name| name.strip_suffix('\''));
    Some(quoted.map_or_else(|| name.to_owned(), |name| name.replace("''", "'")))
}

fn file_uri(path: &Path) -> String {
    let parts: Vec<String> = path
        .to_string_lossy()
        .split('/')
        .map(crate::percent::escaped)
        .collect();
    format!("file://{}", parts.join("/"))
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| io_error("make", folder, source))
}

fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), make)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|source| io_error("write", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracker as _;
    use crate::environment::Environment;
    use crate::mlflow::MlFlow;
    use crate::tracker::RunContext;

    fn started(folder: &Path) -> MlFlow {
        let uri = folder.to_str().unwrap();
        let environment = Environment::from_pairs([("MLFLOW_TRACKING_URI", uri)]);
        let mut tracker = MlFlow::new();
        let options = Values::from([("run_id", "a".repeat(32))]);
        let run = RunContext::new("my: project");
        tracker
            .start(&run.options(options).environment(environment))
            .unwrap();
        tracker
    }

    fn only_run(folder: &Path) -> PathBuf {
        let experiment = experiment_of(folder, "my: project").unwrap().unwrap();
        folder.join(experiment).join("a".repeat(32))
    }

    #[test]
    fn files_are_those_of_mlflow() {
        let folder = tempfile::tempdir().unwrap();
        let mut tracker = started(folder.path());
        let settings = Values::new()
            .with("some_boolean", false)
            .with("long", "x".repeat(6001))
            .with("model", Values::from([("layers", 2)]));
        tracker.store_init_configuration(&settings).unwrap();
        let values = Values::new()
            .with("accuracy", 0.95)
            .with("train/loss", f64::NAN)
            .with("non_numeric", "x");
        tracker.log(&values, Some(10), &Values::new()).unwrap();
        tracker.log(&values, None, &Values::new()).unwrap();
        tracker.finish().unwrap();
        let run = only_run(folder.path());
        let read = |name: &str| fs::read_to_string(run.join(name)).unwrap();
        assert_eq!(read("params/some_boolean"), "False");
        assert_eq!(read("params/model.layers"), "2");
        assert!(!run.join("params/long").exists() && !run.join("metrics/non_numeric").exists());
        let lines: Vec<String> = read("metrics/accuracy")
            .lines()
            .map(str::to_owned)
            .collect();
        assert!(
            lines[0].ends_with(" 0.95 10") && lines[1].ends_with(" 0.95 0"),
            "{lines:?}"
        );
        assert!(read("metrics/train/loss").contains(" nan 10\n"));
        assert_eq!(read("tags/mlflow.source.type"), "LOCAL");
        let meta = read("meta.yaml");
        assert!(
            meta.contains("\nstatus: 3\n") && meta.contains("\ntags: []\n"),
            "{meta}"
        );
        assert!(meta.contains("artifact_uri: \"file:///"), "{meta}");
    }

    #[test]
    fn an_experiment_is_found_again_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        started(folder.path());
        started(folder.path());
        let entries = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(entries, 3, "`.trash`, `0` and one of ours");
        let other = folder.path().join("7");
        fs::create_dir(&other).unwrap();
        fs::write(
            other.join("meta.yaml"),
            "lifecycle_stage: active\nname: 'it''s'\n",
        )
        .unwrap();
        assert_eq!(
            experiment_of(folder.path(), "it's").unwrap().as_deref(),
            Some("7")
        );
        fs::write(
            other.join("meta.yaml"),
            "lifecycle_stage: deleted\nname: x\n",
        )
        .unwrap();
        assert_eq!(experiment_of(folder.path(), "x").unwrap(), None);
    }
}
