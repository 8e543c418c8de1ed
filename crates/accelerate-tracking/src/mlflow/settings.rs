//! What a run of MLflow is to be, from options and variables.

use std::path::PathBuf;

use super::{NAME, text_option};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::machine;
use crate::tracker::RunContext;
use crate::value::{Value, Values};

/// Where runs are kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    Folder(PathBuf),
    Server(String),
}

impl Target {
    /// As `MLFLOW_TRACKING_URI` says; the folder `mlruns` if it says nothing.
    pub(super) fn of(environment: &Environment) -> Result<Self> {
        let Some(uri) = environment.get("MLFLOW_TRACKING_URI") else {
            return Ok(Self::Folder(PathBuf::from("mlruns")));
        };
        if super::is_remote(environment) {
            return Ok(Self::Server(uri.trim_end_matches('/').to_owned()));
        }
        let path = uri.strip_prefix("file://").or(uri.strip_prefix("file:"));
        match path {
            Some(path) => Ok(Self::Folder(PathBuf::from(path))),
            None if uri.contains(':') => Err(Error::Unavailable {
                name: NAME,
                needs: format!(
                    "`MLFLOW_TRACKING_URI` to be a folder or to begin with `http://` or `https://`, found `{}`; \
                     for a database start `mlflow server` on it",
                    uri.split(':').next().unwrap_or_default()
                ),
            }),
            None => Ok(Self::Folder(PathBuf::from(uri))),
        }
    }
}

/// What the run is to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RunSettings {
    pub(super) experiment: String,
    /// The place of artifacts of a new experiment.
    pub(super) artifact_location: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) run_name: String,
    pub(super) tags: Vec<(String, String)>,
}

impl RunSettings {
    pub(super) fn new(run: &RunContext) -> Result<Self> {
        let variable = |name: &str| run.environment.get(name).map(str::to_owned);
        let option = |name: &str| text_option(&run.options, name);
        let experiment = variable("MLFLOW_EXPERIMENT_NAME").unwrap_or_else(|| run.project.clone());
        let run_name = option("run_name").unwrap_or_else(random_name);
        let mut tags = Values::from([
            ("mlflow.runName", run_name.clone()),
            ("mlflow.user", machine::user()),
            ("mlflow.source.name", machine::program()),
            ("mlflow.source.type", "LOCAL".to_owned()),
        ]);
        if let Some(description) = option("description") {
            tags.insert("mlflow.note.content", description);
        }
        let is_nested = variable("MLFLOW_NESTED_RUN").is_some()
            || run.options.get("nested_run") == Some(&Value::Bool(true));
        if is_nested && let Some(parent) = option("parent_run_id") {
            tags.insert("mlflow.parentRunId", parent);
        }
        let own = match variable("MLFLOW_TAGS") {
            Some(json) => serde_json::from_str(&json).map_err(|source| Error::Damaged {
                path: PathBuf::from("MLFLOW_TAGS"),
                expected: "a JSON object of tags in this variable",
                source,
            })?,
            None => match run.options.get("tags") {
                Some(Value::Map(own)) => own.clone(),
                _ => Values::new(),
            },
        };
        for (name, value) in own {
            tags.insert(name, value);
        }
        Ok(Self {
            experiment,
            artifact_location: option("logging_dir"),
            run_id: variable("MLFLOW_RUN_ID").or_else(|| option("run_id")),
            run_name,
            tags: tags
                .into_iter()
                .map(|(name, value)| (name, value.python_text()))
                .collect(),
        })
    }
}

/// A name for people.
fn random_name() -> String {
    format!("run-{}", crate::identifier::alphanumeric(6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_win_over_options() {
        let options = Values::new()
            .with("run_id", "option")
            .with("tags", Values::from([("a", "1")]));
        let run = RunContext::new("project").options(options);
        let settings = RunSettings::new(&run.clone().environment(Environment::default())).unwrap();
        assert_eq!(settings.experiment, "project");
        assert_eq!(settings.run_id.as_deref(), Some("option"));
        assert!(settings.tags.contains(&("a".to_owned(), "1".to_owned())));
        let environment = Environment::from_pairs([
            ("MLFLOW_EXPERIMENT_NAME", "e"),
            ("MLFLOW_RUN_ID", "r"),
            ("MLFLOW_TAGS", r#"{"b":true}"#),
        ]);
        let settings = RunSettings::new(&run.clone().environment(environment)).unwrap();
        assert_eq!(
            (settings.experiment.as_str(), settings.run_id.as_deref()),
            ("e", Some("r"))
        );
        assert!(settings.tags.contains(&("b".to_owned(), "True".to_owned())));
        assert!(!settings.tags.iter().any(|(name, _)| name == "a"));
        let environment = Environment::from_pairs([("MLFLOW_TAGS", "{")]);
        assert!(RunSettings::new(&run.environment(environment)).is_err());
    }

    #[test]
    fn addresses_are_told_apart() {
        let target = |uri| Target::of(&Environment::from_pairs([("MLFLOW_TRACKING_URI", uri)]));
        assert_eq!(target("").unwrap(), Target::Folder("mlruns".into()));
        assert_eq!(
            target("file:///a/b").unwrap(),
            Target::Folder("/a/b".into())
        );
        assert_eq!(target("a/b").unwrap(), Target::Folder("a/b".into()));
        assert_eq!(
            target("http://h:1/").unwrap(),
            Target::Server("http://h:1".to_owned())
        );
        let error = target("postgresql://user:pw@host/db")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("found `postgresql`") && !error.contains("pw"),
            "{error}"
        );
    }
}
