//! The trackers of one accelerator.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;

use accelerate_tracking::{
    Environment, Local, LogWith, RunContext, TrackerHandle, Value, Values, select, settings,
};

use crate::metrics::RunPlace;
use crate::state::PartialState;
use crate::{Error, Result};

/// What is logged with, and what runs of it.
#[derive(Debug)]
pub(crate) struct Trackers {
    selected: Vec<TrackerHandle>,
    logging_dir: Option<PathBuf>,
    running: RefCell<Vec<Running>>,
    /// Whether this rank was told to begin, though it may run nothing.
    is_started: Cell<bool>,
}

#[derive(Debug)]
struct Running {
    name: String,
    tracker: TrackerHandle,
    /// Whether the last call failed: the same trouble is told once.
    failing: Cell<bool>,
}

impl Trackers {
    /// Chooses those that are asked for; the one that needs no service if none is.
    pub(crate) fn new(log_with: &[LogWith], logging_dir: Option<PathBuf>) -> Result<Self> {
        let environment = Environment::from_process();
        let mut selected = select(log_with, logging_dir.as_deref(), &environment)?;
        if log_with.is_empty() {
            selected.push(TrackerHandle::new(Local::new()));
        }
        Ok(Self {
            selected,
            logging_dir,
            running: RefCell::default(),
            is_started: Cell::new(false),
        })
    }

    /// Opens a run with each tracker that runs on this rank.
    pub(crate) fn start(
        &self,
        state: &PartialState,
        project: &str,
        config: Option<&Values>,
        options: &Values,
    ) -> Result<()> {
        if self.is_started.replace(true) {
            tracing::warn!(
                "`init_trackers` was called before: the run that it began goes on, and `{project}` is not begun"
            );
            return Ok(());
        }
        let begun = self.begin(state, project, config, options);
        if begun.is_err() {
            // Nothing runs: it may be tried again.
            self.running.take();
            self.is_started.set(false);
        }
        begun
    }

    fn begin(
        &self,
        state: &PartialState,
        project: &str,
        config: Option<&Values>,
        options: &Values,
    ) -> Result<()> {
        let config = config.map(without_secrets);
        let mut running = Vec::new();
        for tracker in self
            .selected
            .iter()
            .filter(|tracker| runs_here(tracker, state))
        {
            let name = tracker.name();
            tracker.start(&self.context(state, project, options.get(&name)))?;
            running.push(Running {
                name,
                tracker: tracker.clone(),
                failing: Cell::new(false),
            });
        }
        *self.running.borrow_mut() = running;
        if let Some(config) = &config {
            tell_of_nesting(config, state);
            for running in self.running.borrow().iter() {
                running.tracker.store_init_configuration(config)?;
            }
        }
        Ok(())
    }

    fn context(&self, state: &PartialState, project: &str, options: Option<&Value>) -> RunContext {
        let mut run = RunContext::new(project);
        run.logging_dir.clone_from(&self.logging_dir);
        run.rank = state.process_index();
        run.world_size = state.num_processes();
        if let Some(Value::Map(options)) = options {
            run.options = options.clone();
        }
        run
    }

    /// Gives values to each tracker. What fails is told, and stops nothing.
    pub(crate) fn log(&self, values: &Values, step: Option<i64>, options: &Values) {
        let none = Values::new();
        for running in self.running.borrow().iter() {
            let options = match options.get(&running.name) {
                Some(Value::Map(options)) => options,
                _ => &none,
            };
            running.told(running.tracker.log(values, step, options));
        }
    }

    /// The running tracker of this name; a blank one where this rank runs none.
    pub(crate) fn get(&self, state: &PartialState, name: &str) -> Result<TrackerHandle> {
        let running = self.running.borrow();
        if let Some(found) = running.iter().find(|running| running.name == name) {
            return Ok(found.tracker.clone());
        }
        if !state.is_main_process() {
            return Ok(TrackerHandle::blank());
        }
        let known: Vec<String> = running
            .iter()
            .map(|running| format!("`{}`", running.name))
            .collect();
        Err(Error::Argument {
            operation: "get_tracker",
            expected: match known.as_slice() {
                [] => "a call of `init_trackers` before it".to_owned(),
                known => format!("one of {}", known.join(", ")),
            },
            found: format!("`{name}`"),
        })
    }

    /// The folder of the run that the tracker `local` writes on this rank.
    pub(crate) fn run_folder(&self) -> Option<PathBuf> {
        let running = self.running.borrow();
        running.iter().find_map(|running| {
            running
                .tracker
                .with_inner(|local: &mut Local| local.folder().map(ToOwned::to_owned))?
        })
    }

    /// As [`run_folder`](Self::run_folder), from the root, with the tracker that writes it.
    pub(crate) fn place_of_run(&self) -> Option<RunPlace> {
        let running = self.running.borrow();
        running.iter().find_map(|running| {
            let folder = |local: &mut Local| std::path::absolute(local.folder()?).ok();
            Some(RunPlace {
                folder: running.tracker.with_inner(folder)??,
                tracker: running.tracker.clone(),
            })
        })
    }

    /// Closes all runs.
    pub(crate) fn finish(&self) {
        for running in self.running.take() {
            running.told(running.tracker.finish());
        }
        self.is_started.set(false);
    }
}

impl Running {
    /// Tells of a failure, once until a call succeeds.
    fn told(&self, ended: accelerate_tracking::Result<()>) {
        let Err(error) = ended else {
            self.failing.set(false);
            return;
        };
        let error = Error::from(error).with_causes();
        if self.failing.replace(true) {
            tracing::debug!("`{}`: {error}", self.name);
        } else {
            tracing::warn!("`{}`: {error}; the training goes on without it", self.name);
        }
    }
}

/// Whether a tracker runs on this rank.
fn runs_here(tracker: &TrackerHandle, state: &PartialState) -> bool {
    let main_only = tracker.with(|tracker| tracker.main_process_only());
    state.is_main_process() || main_only == Some(false)
}

/// The settings without what is nobody's business.
fn without_secrets(config: &Values) -> Values {
    let mut config = config.clone();
    let redacted = settings::redact(&mut config);
    if !redacted.is_empty() {
        tracing::warn!(
            "settings that look like secrets are not logged: {}",
            redacted.join(", ")
        );
    }
    config
}

/// Says once that some trackers show nested settings flat.
fn tell_of_nesting(config: &Values, state: &PartialState) {
    if state.is_main_process() && settings::flatten(config, ".").nested {
        tracing::info!("nested settings are flattened for trackers that take only flat ones");
    }
}
