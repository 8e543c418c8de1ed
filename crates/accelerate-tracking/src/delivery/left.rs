//! What earlier runs could not deliver.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::spool::SpoolReader;
use super::worker::{Step, Worker};
use super::{FOLDER, Service, Signals, Timing};
use crate::environment::Environment;
use crate::error::{Error, Result, io_error};

/// What became of one folder of undelivered records.
#[derive(Debug)]
#[non_exhaustive]
pub struct Left {
    /// The folder.
    pub folder: PathBuf,
    /// The tracker that it is for.
    pub tracker: String,
    /// Why it is still there; nothing if everything was delivered and it is gone.
    pub error: Option<Error>,
}

/// Sends what earlier runs that logged into `logging_dir` could not deliver.
///
/// Folders that a running training holds are left to it. Keys come from `environment`.
///
/// # Errors
/// [`Error::Io`] if there is a folder and it cannot be looked into; what keeps a single one from
/// being delivered is told with it.
pub fn deliver_left(
    logging_dir: &Path,
    environment: &Environment,
    at_most: Duration,
) -> Result<Vec<Left>> {
    let end = Instant::now() + at_most;
    let root = logging_dir.join(FOLDER);
    let entries = match fs::read_dir(&root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| io_error("look into", &root, source))?,
    };
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("session.json").is_file())
        .collect();
    folders.sort();
    let mut found = Vec::new();
    for folder in folders {
        let tracker = folder.file_name().unwrap_or_default().to_string_lossy();
        let tracker = tracker
            .rsplit_once('-')
            .map_or("", |(name, _)| name)
            .to_owned();
        let error = match deliver_folder(&folder, environment, end) {
            Ok(Some(())) => None,
            Ok(None) => continue,
            Err(error) => Some(error),
        };
        found.push(Left {
            folder,
            tracker,
            error,
        });
    }
    Ok(found)
}

/// Nothing if somebody else holds it.
fn deliver_folder(folder: &Path, environment: &Environment, end: Instant) -> Result<Option<()>> {
    let Some(spool) = SpoolReader::open(folder.to_owned())? else {
        return Ok(None);
    };
    let service = connect(&spool, environment)?;
    let signals = Arc::new(Signals::default());
    let mut worker = Worker::new(spool, service, Timing::default(), signals);
    loop {
        match worker.step() {
            Step::Delivered if Instant::now() < end => {}
            Step::Delivered => {
                return Err(io_error(
                    "deliver in time",
                    folder,
                    std::io::ErrorKind::TimedOut.into(),
                ));
            }
            Step::Idle => {
                worker.remove();
                return Ok(Some(()));
            }
            Step::Failed(error) => return Err(error),
        }
    }
}

/// The service that a folder is for.
fn connect(spool: &SpoolReader, environment: &Environment) -> Result<Box<dyn Service>> {
    let session = spool.session();
    match session.service.as_str() {
        crate::mlflow::NAME => crate::mlflow::connect(&session.session, environment),
        crate::wandb::NAME => crate::wandb::connect(&session.session, environment),
        crate::comet::NAME => crate::comet::connect(&session.session, environment),
        crate::clearml::NAME => crate::clearml::connect(&session.session, environment),
        other => Err(Error::UnknownTracker {
            name: other.to_owned(),
            known: "`mlflow`, `wandb`, `comet_ml`, `clearml`".to_owned(),
        }),
    }
}

/// Sends what earlier runs left, beside the training and without a word if it does not work.
pub(crate) fn send_left_in_background(logging_dir: PathBuf, environment: Environment) {
    /// A service that takes its time gets a part of it now and the rest at the next run.
    const AT_MOST: Duration = Duration::from_secs(600);
    if !logging_dir.join(FOLDER).is_dir() {
        return;
    }
    let send = move || match deliver_left(&logging_dir, &environment, AT_MOST) {
        Ok(left) => {
            for left in left {
                match left.error {
                    None => {
                        tracing::info!("sent to `{}` what an earlier run had left", left.tracker)
                    }
                    Some(error) => tracing::debug!("{error}"),
                }
            }
        }
        Err(error) => tracing::debug!("{error}"),
    };
    if let Err(error) = thread::Builder::new()
        .name("deliver-left".to_owned())
        .spawn(send)
    {
        tracing::debug!("cannot start a thread: {error}");
    }
}
