//! Logging to trackers.

use std::path::{Path, PathBuf};

use super::Accelerator;
use crate::Result;
use crate::tracking::{TrackerHandle, Values};

impl Accelerator {
    /// Where trackers write files: the project's `logging_dir`, or its folder.
    #[must_use]
    pub fn logging_dir(&self) -> Option<&Path> {
        let project = self.project_configuration();
        let logging_dir = project.logging_dir.as_deref();
        logging_dir.or(project.project_dir.as_deref())
    }

    /// Opens a run with each tracker, and keeps its settings.
    ///
    /// Settings may be nested; texts whose names say that they are secrets are left out, with a warning.
    /// If no tracker was chosen with [`log_with`](crate::AcceleratorBuilder::log_with), the run goes into a
    /// folder below `logging_dir`, or `runs`: see [`Local`](crate::tracking::Local). A second call before
    /// [`end_training`](Self::end_training) begins no second run.
    ///
    /// ```
    /// use accelerate::Accelerator;
    /// use accelerate::tracking::Values;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let accelerator = Accelerator::builder().project_dir(folder.path()).build()?;
    /// let config = Values::new().with("learning_rate", 0.01).with("epochs", 3);
    /// accelerator.init_trackers("my_project", Some(&config))?;
    /// for step in 0..10 {
    ///     accelerator.log([("loss", 1.0 / f64::from(step + 1))], Some(step.into()));
    /// }
    /// # let run = accelerator.run_folder().unwrap();
    /// accelerator.end_training()?;
    /// # let run = accelerate::tracking::run::RunReader::open(run).unwrap();
    /// # assert_eq!(run.latest("loss").unwrap().value, 0.1);
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank may call it; trackers run on the main process.
    ///
    /// # Errors
    /// [`Error::Tracking`](crate::Error::Tracking) if a run cannot be opened, such as in a folder that
    /// cannot be written.
    ///
    /// # Source
    /// `Accelerator.init_trackers`. Differs: without `log_with` the original logs nothing.
    pub fn init_trackers(&self, project_name: &str, config: Option<&Values>) -> Result<()> {
        self.init_trackers_with(project_name, config, &Values::new())
    }

    /// As [`init_trackers`](Self::init_trackers), with settings for each tracker under its name.
    ///
    /// ```
    /// # use accelerate::tracking::Values;
    /// let options = Values::from([("wandb", Values::from([("tags", "baseline")]))]);
    /// # let _ = options;
    /// ```
    ///
    /// # Errors
    /// As [`init_trackers`](Self::init_trackers).
    pub fn init_trackers_with(
        &self,
        project_name: &str,
        config: Option<&Values>,
        init_kwargs: &Values,
    ) -> Result<()> {
        let trackers = &self.shared.trackers;
        trackers.start(self.state(), project_name, config, init_kwargs)?;
        let steps = self.gradient_state().progress().steps();
        steps.begin_run(trackers.place_of_run());
        Ok(())
    }

    /// Gives values to each tracker. Nothing that a tracker does wrong, and no service that is away,
    /// stops or slows the training; it is told in a warning.
    ///
    /// Values may be numbers, bools, texts, and maps of them; for a tensor see
    /// [`number`](crate::tracking::number).
    ///
    /// # Collective
    /// Every rank may call it; trackers run on the main process.
    ///
    /// # Source
    /// `Accelerator.log`. Differs: a tracker that fails does not end the training.
    pub fn log(&self, values: impl Into<Values>, step: Option<i64>) {
        self.log_with_kwargs(values, step, &Values::new());
    }

    /// As [`log`](Self::log), with settings for each tracker under its name.
    pub fn log_with_kwargs(
        &self,
        values: impl Into<Values>,
        step: Option<i64>,
        log_kwargs: &Values,
    ) {
        let mut values: Values = values.into();
        if self.shared.step_metrics.in_log {
            self.add_step_metrics(&mut values);
        }
        self.shared.trackers.log(&values, step, log_kwargs);
    }

    /// The tracker of this name, for pictures, tables and what only it can do.
    ///
    /// On ranks that do not track it is a blank one, whose methods do nothing.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) on the main process if no tracker of this name runs.
    ///
    /// # Source
    /// `Accelerator.get_tracker`; what `unwrap=True` gives there,
    /// [`with_inner`](TrackerHandle::with_inner) lends here.
    pub fn get_tracker(&self, name: &str) -> Result<TrackerHandle> {
        self.shared.trackers.get(self.state(), name)
    }

    /// The folder of the run that the tracker `local` writes; on the main process, while it runs.
    #[must_use]
    pub fn run_folder(&self) -> Option<PathBuf> {
        self.shared.trackers.run_folder()
    }
}
