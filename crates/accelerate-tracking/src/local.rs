//! The tracker that needs no service.

use std::any::Any;
use std::path::Path;

use crate::error::{Error, Result};
use crate::file_name::safe;
use crate::media::{Image, Table};
use crate::run::{Outcome, RunInfo, RunWriter, Severity};
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};

/// Its name.
pub(crate) const NAME: &str = "local";

/// Writes each run into a folder of its own, `LOGGING_DIR/PROJECT/TIME-xxxxxx`; see
/// [`run`](crate::run) for what lies there.
///
/// Without a folder for files it writes into `runs` in the working directory. Its one
/// option is `tags`, a list of texts.
#[derive(Debug, Default)]
pub struct Local {
    run: Option<RunWriter>,
}

impl Local {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder of the run, once it has begun.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.run.as_ref().map(RunWriter::folder)
    }

    /// What writes the run, once it has begun.
    pub fn run(&mut self) -> Option<&mut RunWriter> {
        self.run.as_mut()
    }

    /// Writes down that something happened.
    ///
    /// # Errors
    /// [`Error::NotRunning`] before the start, [`Error::Io`] if it cannot be written.
    pub fn event(&mut self, severity: Severity, rank: usize, message: &str) -> Result<()> {
        self.running()?.event(severity, rank, message)
    }

    fn running(&mut self) -> Result<&mut RunWriter> {
        self.run.as_mut().ok_or(Error::NotRunning { name: NAME })
    }
}

impl Tracker for Local {
    fn name(&self) -> &str {
        NAME
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let root = run.files_folder().join(safe(&run.project));
        let info = RunInfo {
            project: run.project.clone(),
            program: crate::machine::program(),
            host: crate::machine::host(),
            world_size: run.world_size,
            tags: texts(run.options.get("tags")),
            ..RunInfo::default()
        };
        self.run = Some(RunWriter::create(&root, info)?);
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        self.running()?.store_settings(values)
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        self.running()?.log(values, step)
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        let run = self.running()?;
        for (name, images) in images {
            for image in images {
                run.image(name, image, step)?;
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
        self.running()?.table(name, table, step)
    }

    fn finish(&mut self) -> Result<()> {
        match self.run.take() {
            Some(mut run) => run.finish(Outcome::Finished, None),
            None => Ok(()),
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The texts of a list, or one alone.
pub(crate) fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::List(items)) => items.iter().map(Value::to_string).collect(),
        Some(Value::Text(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}
