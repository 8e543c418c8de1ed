//! DVCLive: files that `dvc` reads.

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value as Json};

use crate::error::{Error, Result, io_error};
use crate::file_name::safe;
use crate::media::Image;
use crate::notice::Once;
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};
use crate::yaml;

/// Its name.
pub(crate) const NAME: &str = "dvclive";
/// What the first line of our `dvc.yaml` says.
const OURS: &str = "# Written by Accelerate: put entries of your own into another `dvc.yaml`.\n";

/// Writes parameters, metrics and plots as files that `dvc` reads.
///
/// Options at the start: `dir` (`dvclive`), `resume` (false), `dvcyaml` (`dvc.yaml`; nothing for
/// none), `save_dvc_exp`. Numbers and texts are metrics; maps and lists are left out, and reported once.
///
/// # Source
/// `accelerate.tracking.DVCLiveTracker` with `dvclive.Live`. Differs: it saves no experiment into git;
/// `dvc exp save` does that afterwards. A `dvc.yaml` of somebody else's stays as it is.
#[derive(Debug, Default)]
pub struct DvcLive {
    live: Option<Live>,
    refused: Once,
}

#[derive(Debug)]
struct Live {
    folder: PathBuf,
    dvc_yaml: Option<PathBuf>,
    params: Values,
    metrics: Map<String, Json>,
    /// The plots whose files have their first line.
    plots: BTreeSet<PathBuf>,
    has_images: bool,
    /// The step of the next values that come without one.
    next_step: i64,
    last_step: Option<i64>,
}

impl DvcLive {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder of its files, once it has begun.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.live.as_ref().map(|live| live.folder.as_path())
    }

    fn live(&mut self) -> Result<&mut Live> {
        self.live.as_mut().ok_or(Error::NotRunning { name: NAME })
    }
}

impl Tracker for DvcLive {
    fn name(&self) -> &str {
        NAME
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let folder = PathBuf::from(text(&run.options, "dir").unwrap_or("dvclive"));
        let dvc_yaml = match run.options.get("dvcyaml") {
            Some(Value::Null | Value::Bool(false)) => None,
            _ => Some(PathBuf::from(
                text(&run.options, "dvcyaml").unwrap_or("dvc.yaml"),
            )),
        };
        let resume = run.options.get("resume") == Some(&Value::Bool(true))
            || run.environment.is_on("DVCLIVE_RESUME");
        if run.options.get("save_dvc_exp") == Some(&Value::Bool(true)) {
            tracing::warn!(
                "`save_dvc_exp` is not done here: run `dvc exp save` after the training"
            );
        }
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        let last_step = if resume { step_of(&folder) } else { None };
        if !resume {
            remove_old(&folder)?;
        }
        self.live = Some(Live {
            folder,
            dvc_yaml,
            params: Values::new(),
            metrics: Map::new(),
            plots: BTreeSet::new(),
            has_images: false,
            next_step: last_step.map_or(0, |step| step + 1),
            last_step,
        });
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        let live = self.live()?;
        for (name, value) in values.iter() {
            live.params.insert(name, value.clone());
        }
        let text = yaml::document(&live.params);
        write(&live.folder.join("params.yaml"), &text)?;
        live.write_dvc_yaml()
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        let refused = &mut self.refused;
        let live = self.live.as_mut().ok_or(Error::NotRunning { name: NAME })?;
        let step = step.unwrap_or(live.next_step);
        for (name, value) in values.iter() {
            match value {
                Value::Null | Value::List(_) | Value::Map(_) => refused.value(NAME, name, value),
                plain => live.metric(name, plain, step)?,
            }
        }
        live.next_step = step.saturating_add(1);
        live.last_step = Some(step);
        live.write_metrics()
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        let live = self.live()?;
        let mut folder = live.folder.join("plots/images");
        if let Some(step) = step {
            folder.push(step.to_string());
        }
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        for (name, images) in images {
            for (number, image) in images.iter().enumerate() {
                let number = if images.len() > 1 {
                    format!("_{number}")
                } else {
                    String::new()
                };
                let path = folder.join(format!("{}{number}.png", safe(name)));
                fs::write(&path, image.to_png()?)
                    .map_err(|source| io_error("write", &path, source))?;
            }
        }
        live.has_images = true;
        live.write_dvc_yaml()
    }

    fn finish(&mut self) -> Result<()> {
        let Some(live) = self.live.take() else {
            return Ok(());
        };
        if live.last_step.is_some() {
            live.write_metrics()?;
        }
        live.write_dvc_yaml()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Live {
    fn metric(&mut self, name: &str, value: &Value, step: i64) -> Result<()> {
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        let Some((last, above)) = parts.split_last() else {
            return Ok(());
        };
        put(&mut self.metrics, above, last, json(value));
        let mut path = self.folder.join("plots/metrics");
        path.extend(above.iter().map(|part| safe(part)));
        path.push(format!("{}.tsv", safe(last)));
        let failed = |source| io_error("write to", &path, source);
        let mut lines = String::new();
        if self.plots.insert(path.clone()) && !path.exists() {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(failed)?;
            }
            lines = format!("step\t{}\n", cell(last));
            // A plot is listed by its folder.
            if self.plots.len() == 1 {
                self.write_dvc_yaml()?;
            }
        }
        lines.push_str(&format!("{step}\t{}\n", cell(&value.python_text())));
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
            .map_err(failed)
    }

    fn write_metrics(&self) -> Result<()> {
        let mut metrics = self.metrics.clone();
        if let Some(step) = self.last_step {
            metrics.insert("step".to_owned(), step.into());
        }
        let path = self.folder.join("metrics.json");
        let mut text = Vec::new();
        let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut text, indent);
        serde::Serialize::serialize(&metrics, &mut serializer).map_err(|source| {
            Error::Damaged {
                path: path.clone(),
                expected: "something that JSON can hold",
                source,
            }
        })?;
        text.push(b'\n');
        fs::write(&path, text).map_err(|source| io_error("write", &path, source))
    }

    /// Tells `dvc` where parameters, metrics and plots are; only of what there is.
    fn write_dvc_yaml(&self) -> Result<()> {
        let Some(path) = &self.dvc_yaml else {
            return Ok(());
        };
        match fs::read_to_string(path) {
            Ok(text) if !text.starts_with(OURS) => {
                tracing::debug!("`{}` is somebody else's and stays as it is", path.display());
                return Ok(());
            }
            _ => {}
        }
        let folder = relative_to(&self.folder, path.parent().unwrap_or(Path::new("")));
        let mut content = Values::new();
        let list = |entry: Value| vec![entry];
        if !self.params.is_empty() {
            content.insert("params", list(format!("{folder}/params.yaml").into()));
        }
        if !self.metrics.is_empty() {
            content.insert("metrics", list(format!("{folder}/metrics.json").into()));
        }
        let mut plots = Vec::new();
        if !self.plots.is_empty() {
            let axis = Values::from([("x", "step")]);
            plots.push(Value::from(Values::from([(
                format!("{folder}/plots/metrics"),
                axis,
            )])));
        }
        if self.has_images {
            plots.push(format!("{folder}/plots/images").into());
        }
        if !plots.is_empty() {
            content.insert("plots", plots);
        }
        if content.is_empty() {
            return Ok(());
        }
        write(path, &format!("{OURS}{}", yaml::document(&content)))
    }
}

/// Puts a value at the place that its name says.
fn put(map: &mut Map<String, Json>, above: &[&str], last: &str, value: Json) {
    let Some((first, rest)) = above.split_first() else {
        map.insert(last.to_owned(), value);
        return;
    };
    let inner = map
        .entry(*first)
        .or_insert_with(|| Json::Object(Map::new()));
    if !inner.is_object() {
        *inner = Json::Object(Map::new());
    }
    if let Json::Object(inner) = inner {
        put(inner, rest, last, value);
    }
}

/// What stands in `metrics.json`.
fn json(value: &Value) -> Json {
    match value {
        Value::Float(number) if !number.is_finite() => value.python_text().into(),
        other => other.to_json(),
    }
}

/// A cell of a table whose columns are set apart by tabs.
fn cell(text: &str) -> String {
    if text.contains(['\t', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

fn text<'a>(options: &'a Values, name: &str) -> Option<&'a str> {
    options.get(name).and_then(Value::as_text)
}

/// The step that an earlier run came to.
fn step_of(folder: &Path) -> Option<i64> {
    let text = fs::read(folder.join("metrics.json")).ok()?;
    serde_json::from_slice::<Json>(&text)
        .ok()?
        .get("step")?
        .as_i64()
}

/// Removes what an earlier run wrote.
fn remove_old(folder: &Path) -> Result<()> {
    for name in [
        "plots/metrics",
        "plots/images",
        "plots/sklearn",
        "plots/custom",
    ] {
        let path = folder.join(name);
        if path.is_dir() {
            fs::remove_dir_all(&path).map_err(|source| io_error("remove", &path, source))?;
        }
    }
    for name in ["metrics.json", "params.yaml", "report.md", "report.html"] {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The path from one folder to another, with slashes.
fn relative_to(folder: &Path, from: &Path) -> String {
    let parts = |path: &Path| -> Vec<String> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.components()
            .filter(|part| !matches!(part, Component::CurDir))
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect()
    };
    let from = if from.as_os_str().is_empty() {
        Path::new(".")
    } else {
        from
    };
    let (folder, from) = (parts(folder), parts(from));
    let common = folder
        .iter()
        .zip(&from)
        .take_while(|(one, other)| one == other)
        .count();
    let up = std::iter::repeat_n("..".to_owned(), from.len() - common);
    let way: Vec<String> = up.chain(folder.into_iter().skip(common)).collect();
    if way.is_empty() {
        ".".to_owned()
    } else {
        way.join("/")
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|source| io_error("write", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    fn started(folder: &Path, options: Values) -> DvcLive {
        let mut tracker = DvcLive::new();
        let options = options
            .with("dir", folder.join("dvclive").to_str().unwrap())
            .with("dvcyaml", folder.join("dvc.yaml").to_str().unwrap());
        let run = RunContext::new("ignored")
            .options(options)
            .environment(Environment::default());
        tracker.start(&run).unwrap();
        tracker
    }

    fn read(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn files_are_those_of_dvclive() {
        let folder = tempfile::tempdir().unwrap();
        let mut tracker = started(folder.path(), Values::new());
        let settings = Values::new().with("num", 12).with("some_boolean", false);
        tracker.store_init_configuration(&settings).unwrap();
        let none = Values::new();
        let values = Values::new()
            .with("total_loss", 0.1)
            .with("train/acc", f64::NAN)
            .with("my_text", "some_value")
            .with("dropped", vec![Value::from(1)]);
        tracker.log(&values, None, &none).unwrap();
        tracker.log(&values, None, &none).unwrap();
        tracker.log(&values, Some(3), &none).unwrap();
        let image = Image::new(1, 1, crate::Colour::Grey, vec![0]).unwrap();
        tracker
            .log_images(&[("i".to_owned(), vec![image])], Some(3), &none)
            .unwrap();
        tracker.finish().unwrap();
        let folder = folder.path();
        assert_eq!(
            read(folder, "dvclive/params.yaml"),
            "num: 12\nsome_boolean: false\n"
        );
        assert_eq!(
            read(folder, "dvclive/plots/metrics/total_loss.tsv"),
            "step\ttotal_loss\n0\t0.1\n1\t0.1\n3\t0.1\n"
        );
        assert_eq!(
            read(folder, "dvclive/plots/metrics/train/acc.tsv"),
            "step\tacc\n0\tnan\n1\tnan\n3\tnan\n"
        );
        let metrics: Json = serde_json::from_str(&read(folder, "dvclive/metrics.json")).unwrap();
        let expected = serde_json::json!({
            "total_loss": 0.1, "train": {"acc": "nan"}, "my_text": "some_value", "step": 3
        });
        assert_eq!(metrics, expected);
        assert!(read(folder, "dvclive/metrics.json").contains("\n    \"step\": 3"));
        assert!(folder.join("dvclive/plots/images/3/i.png").is_file());
        let expected = "\
params:
- dvclive/params.yaml
metrics:
- dvclive/metrics.json
plots:
- dvclive/plots/metrics:
    x: step
- dvclive/plots/images
";
        assert_eq!(
            read(folder, "dvc.yaml").strip_prefix(OURS).unwrap(),
            expected
        );
    }

    #[test]
    fn an_earlier_run_goes_or_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let values = Values::from([("loss", 1)]);
        let mut first = started(folder.path(), Values::new());
        first.log(&values, Some(7), &Values::new()).unwrap();
        let mut second = started(folder.path(), Values::from([("resume", true)]));
        second.log(&values, None, &Values::new()).unwrap();
        let plot = "dvclive/plots/metrics/loss.tsv";
        assert_eq!(read(folder.path(), plot), "step\tloss\n7\t1\n8\t1\n");
        let mut third = started(folder.path(), Values::new());
        third.log(&values, None, &Values::new()).unwrap();
        assert_eq!(read(folder.path(), plot), "step\tloss\n0\t1\n");
    }

    #[test]
    fn the_file_of_somebody_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("dvc.yaml"), "stages: {}\n").unwrap();
        let mut tracker = started(folder.path(), Values::new());
        tracker
            .log(&Values::from([("loss", 1)]), None, &Values::new())
            .unwrap();
        tracker.finish().unwrap();
        assert_eq!(read(folder.path(), "dvc.yaml"), "stages: {}\n");
    }
}
