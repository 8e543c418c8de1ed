//! How the launcher treats the processes, beyond what they are told.

use std::{path::PathBuf, time::Duration};

use super::{placement::Placement, streams::Streams};

/// The name of a run that got none, as `torchrun` has it.
pub(crate) const RUN_ID: &str = "none";

/// How the launcher treats the processes, beyond what they are told.
#[derive(Debug, Clone)]
pub(crate) struct Handling {
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// How often all ranks are started again after a failure.
    pub(crate) max_restarts: usize,
    /// How long the whole job may take, restarts included.
    pub(crate) time_limit: Option<Duration>,
    /// Whether lines of several processes carry `node:rank`.
    pub(crate) prefix: bool,
    /// Local ranks whose output is shown; `None` shows all.
    pub(crate) shown: Option<Vec<usize>>,
    /// Folder for log files.
    pub(crate) log_dir: Option<PathBuf>,
    /// Streams that get log files; `None` selects all.
    pub(crate) tee: Option<Streams>,
    /// Name of the run, in the environment of the ranks and in the name of the log folder.
    pub(crate) run_id: String,
    /// File for a report that programs can read.
    pub(crate) report: Option<PathBuf>,
    /// Folder below which the run is looked for that is shown while the job goes on.
    pub(crate) watch: Option<PathBuf>,
    /// On which CPUs each rank runs; `None` leaves it to the system.
    pub(crate) placement: Option<Placement>,
    /// Whether nothing is said while processes end.
    pub(crate) quiet: bool,
    /// Whether the ends of all ranks are told, not only that of the first one to fail.
    pub(crate) debug: bool,
}

impl Default for Handling {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            max_restarts: 0,
            time_limit: None,
            prefix: true,
            shown: None,
            log_dir: None,
            tee: None,
            run_id: RUN_ID.to_owned(),
            report: None,
            watch: None,
            placement: None,
            quiet: false,
            debug: false,
        }
    }
}
