//! What every tracker can do.

use std::any::Any;
use std::fmt::Debug;
use std::path::PathBuf;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::media::{Image, Table};
use crate::value::Values;

/// Where files go if nobody says where.
const DEFAULT_FOLDER: &str = "runs";

/// What a run is, as told to each tracker when it starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunContext {
    /// What the run belongs to: the name given to `init_trackers`.
    pub project: String,
    /// Where trackers may write files.
    pub logging_dir: Option<PathBuf>,
    /// This process's rank in the job.
    pub rank: usize,
    /// The number of processes in the job.
    pub world_size: usize,
    /// Settings of this tracker alone, such as tags; each tracker documents its own.
    pub options: Values,
    /// The variables by which services are set up.
    pub environment: Environment,
}

impl RunContext {
    /// A run of one process, in the environment of this one.
    #[must_use]
    pub fn new(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            world_size: 1,
            environment: Environment::from_process(),
            ..Self::default()
        }
    }

    /// The same with a folder for files.
    #[must_use]
    pub fn logging_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.logging_dir = Some(folder.into());
        self
    }

    /// The same with settings for this tracker alone.
    #[must_use]
    pub fn options(mut self, options: Values) -> Self {
        self.options = options;
        self
    }

    /// The same with these variables instead of the process's.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// The folder for files, or `runs` in the working directory where nobody says.
    pub(crate) fn files_folder(&self) -> PathBuf {
        let folder = self.logging_dir.clone();
        folder.unwrap_or_else(|| PathBuf::from(DEFAULT_FOLDER))
    }

    /// The folder for files, of a tracker that cannot be without.
    ///
    /// # Errors
    /// [`Error::NoLoggingDirectory`] if there is none.
    pub fn require_logging_dir(&self, name: &str) -> Result<&PathBuf> {
        self.logging_dir
            .as_ref()
            .ok_or_else(|| Error::NoLoggingDirectory {
                name: name.to_owned(),
            })
    }
}

/// Takes down what happens in a training: built in, or of the program's own.
///
/// `start` comes first, then `store_init_configuration` once if there are settings, then the logging
/// calls in any order, then `finish`. A tracker is used by one thread at a time. What fails in
/// `log` is reported and does not stop the training.
///
/// ```
/// use accelerate_tracking::{Result, RunContext, Tracker, Values};
///
/// #[derive(Debug, Default)]
/// struct Rows(Vec<String>);
///
/// impl Tracker for Rows {
///     fn name(&self) -> &str {
///         "rows"
///     }
///
///     fn log(&mut self, values: &Values, _step: Option<i64>, _options: &Values) -> Result<()> {
///         let row: Vec<String> = values.iter().map(|(_, value)| value.to_string()).collect();
///         self.0.push(row.join(","));
///         Ok(())
///     }
///
///     fn as_any(&mut self) -> &mut dyn std::any::Any {
///         self
///     }
/// }
///
/// let mut rows = Rows::default();
/// rows.start(&RunContext::new("project"))?;
/// rows.log(&Values::from([("loss", 0.5)]), Some(0), &Values::new())?;
/// assert_eq!(rows.0, ["0.5"]);
/// # Ok::<(), accelerate_tracking::Error>(())
/// ```
///
/// # Source
/// `accelerate.tracking.GeneralTracker`. Differs: `start` opens the run, never the constructor, so
/// that nothing happens on ranks that do not track; the inner handle is found by its type.
pub trait Tracker: Debug + Send {
    /// The name by which it is found again.
    fn name(&self) -> &str;

    /// Whether it cannot be without a folder for files.
    fn requires_logging_directory(&self) -> bool {
        false
    }

    /// Whether it runs on rank 0 alone; otherwise its methods are called on every rank.
    fn main_process_only(&self) -> bool {
        true
    }

    /// Opens the run.
    ///
    /// # Errors
    /// If it cannot be opened: a folder that cannot be written, a missing key.
    fn start(&mut self, run: &RunContext) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// Keeps the settings of the run. They may be nested.
    ///
    /// # Errors
    /// If they cannot be kept.
    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        let _ = values;
        Ok(())
    }

    /// Takes down values at a step. `options` are for this tracker alone.
    ///
    /// # Errors
    /// If they cannot be taken down.
    fn log(&mut self, values: &Values, step: Option<i64>, options: &Values) -> Result<()>;

    /// Takes down pictures, several under each name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has no place for them.
    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        options: &Values,
    ) -> Result<()> {
        let _ = (images, step, options);
        Err(Error::Unsupported {
            name: self.name().to_owned(),
            what: "images",
        })
    }

    /// Takes down a table under a name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has no place for it.
    fn log_table(
        &mut self,
        name: &str,
        table: &Table,
        step: Option<i64>,
        options: &Values,
    ) -> Result<()> {
        let _ = (name, table, step, options);
        Err(Error::Unsupported {
            name: self.name().to_owned(),
            what: "tables",
        })
    }

    /// Closes the run; nothing is logged after it.
    ///
    /// # Errors
    /// If something could not be brought to its place.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// The tracker itself, for calls that only its own type has.
    fn as_any(&mut self) -> &mut dyn Any;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Bare;

    impl Tracker for Bare {
        fn name(&self) -> &str {
            "bare"
        }

        fn log(&mut self, _: &Values, _: Option<i64>, _: &Values) -> Result<()> {
            Ok(())
        }

        fn as_any(&mut self) -> &mut dyn Any {
            self
        }
    }

    #[test]
    fn what_a_tracker_does_not_have_is_refused_by_name() {
        let error = Bare.log_images(&[], None, &Values::new()).unwrap_err();
        assert_eq!(error.to_string(), "the tracker `bare` does not take images");
        let error = RunContext::new("p")
            .require_logging_dir("bare")
            .unwrap_err();
        assert!(
            error.to_string().contains("requires a `logging_dir`"),
            "{error}"
        );
    }
}
