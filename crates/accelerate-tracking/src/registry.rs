//! Choosing trackers by name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::shared::TrackerHandle;
use crate::tracker::Tracker;
use crate::{dvclive, local, tensorboard};

/// A tracker that is built in.
///
/// # Source
/// `accelerate.utils.LoggerType`, and [`Local`](Self::Local).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoggerType {
    /// Folders that need no service.
    Local,
    /// TensorBoard's event files.
    TensorBoard,
    /// Weights & Biases.
    Wandb,
    /// Comet.
    CometMl,
    /// Aim.
    Aim,
    /// MLflow.
    MlFlow,
    /// ClearML.
    ClearMl,
    /// DVCLive's files.
    DvcLive,
    /// SwanLab.
    SwanLab,
    /// Trackio.
    Trackio,
}

impl LoggerType {
    /// All, in the order in which `all` takes them.
    pub const ALL: [Self; 10] = [
        Self::Local,
        Self::TensorBoard,
        Self::Wandb,
        Self::CometMl,
        Self::Aim,
        Self::MlFlow,
        Self::ClearMl,
        Self::DvcLive,
        Self::SwanLab,
        Self::Trackio,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => local::NAME,
            Self::TensorBoard => tensorboard::NAME,
            Self::Wandb => "wandb",
            Self::CometMl => "comet_ml",
            Self::Aim => "aim",
            Self::MlFlow => "mlflow",
            Self::ClearMl => "clearml",
            Self::DvcLive => dvclive::NAME,
            Self::SwanLab => "swanlab",
            Self::Trackio => "trackio",
        }
    }

    /// Whether it cannot be without a folder for files.
    #[must_use]
    pub fn requires_logging_directory(self) -> bool {
        matches!(self, Self::TensorBoard | Self::Aim)
    }

    /// Makes it, if it can work in this environment.
    ///
    /// # Errors
    /// [`Error::Unavailable`] says what it needs.
    pub fn make(self, environment: &Environment) -> Result<TrackerHandle> {
        if let Some(needs) = self.lacks(environment) {
            return Err(Error::Unavailable {
                name: self.name(),
                needs,
            });
        }
        let tracker: Box<dyn Tracker> = match self {
            Self::Local => Box::new(local::Local::new()),
            Self::TensorBoard => Box::new(tensorboard::TensorBoard::new()),
            Self::DvcLive => Box::new(dvclive::DvcLive::new()),
            Self::MlFlow => Box::new(crate::mlflow::MlFlow::new()),
            Self::Wandb => Box::new(crate::wandb::Wandb::new()),
            #[cfg(feature = "network")]
            Self::CometMl => Box::new(crate::comet::Comet::new()),
            #[cfg(feature = "network")]
            Self::ClearMl => Box::new(crate::clearml::ClearMl::new()),
            other => {
                return Err(Error::Unavailable {
                    name: other.name(),
                    needs: other.needs().to_owned(),
                });
            }
        };
        Ok(TrackerHandle::from_box(tracker))
    }

    /// What keeps it from working, if anything does.
    fn lacks(self, environment: &Environment) -> Option<String> {
        let network = cfg!(feature = "network");
        let has = |name: &str| environment.get(name).is_some();
        let works = match self {
            Self::Local | Self::TensorBoard | Self::DvcLive => true,
            Self::MlFlow => network || !crate::mlflow::is_remote(environment),
            Self::Wandb => crate::wandb::is_available(environment),
            Self::CometMl => network && (has("COMET_API_KEY") || has("COMET_OFFLINE_DIRECTORY")),
            Self::ClearMl => {
                let keys = has("CLEARML_API_ACCESS_KEY") && has("CLEARML_API_SECRET_KEY");
                network && (keys || environment.is_on("CLEARML_OFFLINE_MODE"))
            }
            Self::Aim | Self::SwanLab | Self::Trackio => false,
        };
        (!works).then(|| self.needs().to_owned())
    }

    /// What it needs to work.
    fn needs(self) -> &'static str {
        match self {
            Self::Local | Self::DvcLive => "nothing",
            Self::TensorBoard => "`logging_dir` or `project_dir`",
            Self::MlFlow => {
                "nothing for a folder; the feature `network` if `MLFLOW_TRACKING_URI` is a server's"
            }
            Self::Wandb => {
                "`WANDB_API_KEY` or a login in `~/.netrc`, with the feature `network`; or `WANDB_MODE=offline`"
            }
            Self::CometMl => {
                "`COMET_API_KEY` or `COMET_OFFLINE_DIRECTORY`, and the feature `network`"
            }
            Self::ClearMl => {
                "`CLEARML_API_ACCESS_KEY` and `CLEARML_API_SECRET_KEY`, or `CLEARML_OFFLINE_MODE=1`, \
                 and the feature `network`"
            }
            Self::Aim => {
                "a program in Python: its storage has a private form; log with `tensorboard` and run \
                 `aim convert tensorboard`"
            }
            Self::SwanLab => {
                "a program in Python; log with `tensorboard` and run `swanlab convert`"
            }
            Self::Trackio => "a program in Python; log with `local` or `tensorboard`",
        }
    }
}

impl fmt::Display for LoggerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LoggerType {
    type Err = Error;

    /// # Errors
    /// [`Error::UnknownTracker`], with the names that are known.
    fn from_str(name: &str) -> Result<Self> {
        let same = |known: &&Self| known.name().eq_ignore_ascii_case(name);
        Self::ALL
            .iter()
            .find(same)
            .copied()
            .ok_or_else(|| Error::UnknownTracker {
                name: name.to_owned(),
                known: known(),
            })
    }
}

/// The trackers there are, with what each needs.
fn known() -> String {
    let described = LoggerType::ALL.map(|kind| match kind.needs() {
        "nothing" => format!("`{kind}`"),
        needs => format!("`{kind}` (needs {needs})"),
    });
    format!("`all`, {}", described.join(", "))
}

/// What to log with.
#[derive(Debug, Clone)]
pub enum LogWith {
    /// Every tracker that is available.
    All,
    /// One that is built in.
    Known(LoggerType),
    /// One by its name, or `all`.
    Named(String),
    /// One of the program's own.
    Own(TrackerHandle),
}

impl LogWith {
    /// A tracker of the program's own.
    #[must_use]
    pub fn own(tracker: impl Tracker + 'static) -> Self {
        Self::Own(TrackerHandle::new(tracker))
    }
}

impl From<&str> for LogWith {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<LoggerType> for LogWith {
    fn from(kind: LoggerType) -> Self {
        Self::Known(kind)
    }
}

impl From<TrackerHandle> for LogWith {
    fn from(tracker: TrackerHandle) -> Self {
        Self::Own(tracker)
    }
}

/// The trackers to log with.
///
/// With `all` anywhere these are own trackers first, then every built-in one that is available here.
/// Otherwise each that is named, once. One that is not available is passed over.
///
/// # Errors
/// [`Error::UnknownTracker`], and [`Error::NoLoggingDirectory`] for a tracker that is named, is available
/// and has no folder. `all` passes over such.
pub fn select(
    log_with: &[LogWith],
    logging_dir: Option<&Path>,
    environment: &Environment,
) -> Result<Vec<TrackerHandle>> {
    let (mut own, mut kinds, mut all) = (Vec::new(), Vec::new(), false);
    // The order of built-in ones among own ones does not matter to any of them.
    for entry in log_with {
        match entry {
            LogWith::All => all = true,
            LogWith::Named(name) if name.eq_ignore_ascii_case("all") => all = true,
            LogWith::Named(name) => kinds.push(name.parse()?),
            LogWith::Known(kind) => kinds.push(*kind),
            LogWith::Own(tracker) => own.push(tracker.clone()),
        }
    }
    let mut selected: Vec<TrackerHandle> = Vec::new();
    for tracker in own {
        if !selected.iter().any(|known| known.is_same(&tracker)) {
            require_folder(&tracker, logging_dir, all)?;
            selected.push(tracker);
        }
    }
    if all {
        kinds = LoggerType::ALL.to_vec();
    }
    let mut seen = Vec::new();
    for kind in kinds {
        if seen.contains(&kind) {
            continue;
        }
        seen.push(kind);
        let tracker = match kind.make(environment) {
            Ok(tracker) => tracker,
            Err(unavailable) => {
                tracing::debug!("{unavailable}");
                continue;
            }
        };
        if kind.requires_logging_directory() && logging_dir.is_none() {
            if all {
                tracing::warn!("`{kind}` is left out: it needs a `logging_dir`");
                continue;
            }
            return Err(Error::NoLoggingDirectory {
                name: kind.name().to_owned(),
            });
        }
        selected.push(tracker);
    }
    if selected.is_empty() && !log_with.is_empty() {
        tracing::warn!("none of the trackers that were asked for is available: nothing is logged");
    }
    Ok(selected)
}

/// Demands a folder of an own tracker that needs one, unless it came with `all`.
fn require_folder(tracker: &TrackerHandle, folder: Option<&Path>, all: bool) -> Result<()> {
    let needs = tracker.with(|tracker| tracker.requires_logging_directory());
    if needs == Some(true) && folder.is_none() && !all {
        return Err(Error::NoLoggingDirectory {
            name: tracker.name(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Values;

    #[derive(Debug)]
    struct Own;

    impl Tracker for Own {
        fn name(&self) -> &str {
            "own"
        }

        fn log(&mut self, _: &Values, _: Option<i64>, _: &Values) -> Result<()> {
            Ok(())
        }

        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }

    fn names(
        log_with: &[LogWith],
        folder: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Vec<String> {
        let environment = Environment::from_pairs(variables.iter().copied());
        let selected = select(log_with, folder.map(Path::new), &environment).unwrap();
        selected.iter().map(TrackerHandle::name).collect()
    }

    #[test]
    fn names_instances_and_all_mix() {
        let own = LogWith::own(Own);
        assert!(names(&[], None, &[]).is_empty());
        let twice = [
            "local".into(),
            LoggerType::Local.into(),
            own.clone(),
            own.clone(),
        ];
        assert_eq!(names(&twice, None, &[]), ["own", "local"]);
        let all = ["all".into(), own];
        assert_eq!(
            names(&all, Some("here"), &[]),
            ["own", "local", "tensorboard", "mlflow", "dvclive"]
        );
        // Without a folder `all` does without those that need one.
        assert_eq!(
            names(&[LogWith::All], None, &[]),
            ["local", "mlflow", "dvclive"]
        );
        let offline = [("WANDB_MODE", "offline")];
        assert!(names(&[LogWith::All], None, &offline).contains(&"wandb".to_owned()));
    }

    #[test]
    fn what_is_not_available_is_passed_over() {
        assert!(names(&["comet_ml".into()], None, &[]).is_empty());
        assert!(names(&["aim".into()], Some("here"), &[]).is_empty());
        let error = LoggerType::Aim.make(&Environment::default()).unwrap_err();
        assert!(
            error.to_string().contains("aim convert tensorboard"),
            "{error}"
        );
    }

    #[test]
    fn mistakes_are_told() {
        let none = Environment::default();
        let error = select(&["tensorbord".into()], None, &none).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("there is no tracker `tensorbord`; known are `all`, `local`"),
            "{text}"
        );
        assert!(text.contains("`comet_ml` (needs `COMET_API_KEY`"), "{text}");
        let error = select(&["tensorboard".into()], None, &none).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Logging with `tensorboard` requires a `logging_dir`; set `project_dir` or `logging_dir`"
        );
    }
}
