use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use accelerate_torch::profiler::{
    PreparedProfiler, Profile, ProfileRange, ProfilerOptions, ProfilerSession,
};
use tracing::warn;

use super::{
    EventAverages, FunctionEvents, GroupBy, ProfileKwargs, ProfilerAction, Schedule, TraceHandler,
};
use crate::{Error, PartialState, Result};

/// A profiler that runs, or has run. A process has one at a time.
///
/// With a schedule, [`step`](Self::step) is called at the end of every step of the job.
/// [`finish`](Self::finish) ends it; dropped unfinished, it ends without traces.
///
/// # Source
/// `torch.profiler.profile`, as `Accelerator.profile` makes it.
#[derive(Debug)]
#[must_use = "a profiler records nothing useful when it is dropped at once"]
pub struct Profiler {
    kwargs: ProfileKwargs,
    options: ProfilerOptions,
    state: PartialState,
    step: u64,
    action: ProfilerAction,
    machine: Machine,
    /// The step that is running, as a range of its own.
    range: Option<ProfileRange>,
    trace: Option<Trace>,
    is_finished: bool,
}

/// What libtorch's profiler does.
#[derive(Debug)]
enum Machine {
    Idle,
    Prepared(PreparedProfiler),
    Running(ProfilerSession),
}

/// The last recording, and where it was first written: libtorch writes a recording once.
#[derive(Debug)]
struct Trace {
    profile: Profile,
    written: RefCell<Option<PathBuf>>,
}

impl Profiler {
    /// Starts to record, or to follow the schedule.
    ///
    /// # Errors
    /// If a profiler is running in this process.
    pub(crate) fn start(kwargs: ProfileKwargs, state: PartialState) -> Result<Self> {
        let options = kwargs.options(state.device());
        let mut profiler = Self {
            options,
            state,
            step: 0,
            action: ProfilerAction::None,
            machine: Machine::Idle,
            range: None,
            trace: None,
            is_finished: false,
            kwargs,
        };
        if profiler
            .kwargs
            .schedule_option
            .is_some_and(|schedule| schedule.warmup == 0)
        {
            warn!("a profiler without warm-up steps counts its own start into the first trace");
        }
        profiler.go_to(profiler.action_of(0))?;
        profiler.name_step()?;
        Ok(profiler)
    }

    /// Ends a step of the job and goes to the next one of the schedule.
    ///
    /// # Errors
    /// What `on_trace_ready` reports, or libtorch's profiler.
    pub fn step(&mut self) -> Result<()> {
        if self.is_finished {
            return Err(Error::Argument {
                operation: "Profiler::step",
                expected: "a profiler that runs".to_owned(),
                found: "one that is finished".to_owned(),
            });
        }
        self.range = None;
        self.step += 1;
        self.go_to(self.action_of(self.step))?;
        self.name_step()
    }

    /// How many steps have ended.
    #[must_use]
    pub fn step_num(&self) -> u64 {
        self.step
    }

    /// Ends recording, and writes `profile_<rank>.json` into `output_trace_dir` if there is one.
    ///
    /// # Collective
    /// Every rank calls this where `output_trace_dir` is set: they wait for each other's files.
    ///
    /// # Errors
    /// What `on_trace_ready` reports, or if the trace cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        if self.is_finished {
            return Ok(());
        }
        self.is_finished = true;
        self.range = None;
        let ended = match self.action {
            ProfilerAction::None => Ok(()),
            ProfilerAction::WarmUp => self.record().and_then(|()| self.stop()),
            ProfilerAction::Record | ProfilerAction::RecordAndSave => self.save(),
        };
        self.action = ProfilerAction::None;
        let Some(folder) = self.kwargs.output_trace_dir.clone() else {
            return ended;
        };
        // The others wait below, whether this rank could end and write or not.
        let written = self.write_into(&folder);
        self.state.wait_for_everyone()?;
        ended.and(written)
    }

    /// What was recorded last, nested.
    ///
    /// # Errors
    /// [`Error::Argument`] while nothing has been recorded to its end.
    pub fn events(&self) -> Result<FunctionEvents> {
        let recorded = self.trace()?.profile.events()?;
        let options = &self.options;
        Ok(FunctionEvents::new(
            &recorded,
            options.profile_memory,
            options.with_flops,
        ))
    }

    /// The sums over events of each name.
    ///
    /// ```
    /// use accelerate::Accelerator;
    /// use accelerate::profile::GroupBy;
    /// use accelerate::tch::{Device, Kind, Tensor};
    ///
    /// let accelerator = Accelerator::builder().cpu(true).build()?;
    /// let mut profiler = accelerator.profile()?;
    /// let x = Tensor::ones([64, 64], (Kind::Float, Device::Cpu));
    /// let _y = x.matmul(&x);
    /// profiler.finish()?;
    /// let averages = profiler.key_averages(GroupBy::Name)?;
    /// println!("{}", averages.table().sort_by("cpu_time_total")?.row_limit(Some(10)));
    /// assert_eq!(averages.get("aten::mm").map(|sums| sums.count), Some(1));
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn key_averages(&self, group_by: GroupBy) -> Result<EventAverages> {
        Ok(self.events()?.key_averages(group_by))
    }

    /// Writes the last recording so that `chrome://tracing` and Perfetto read it.
    ///
    /// # Errors
    /// As [`events`](Self::events), or if the file cannot be written.
    pub fn export_chrome_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, trace) = (path.as_ref(), self.trace()?);
        let mut written = trace.written.borrow_mut();
        match written.as_deref() {
            None => trace.profile.save_chrome_trace(path)?,
            // A file copied onto itself would be emptied.
            Some(first) if is_same_file(first, path) => {}
            Some(first) => {
                fs::copy(first, path).map_err(|error| cannot_write(path, &error))?;
            }
        }
        if written.is_none() {
            *written = Some(path.to_owned());
        }
        Ok(())
    }

    fn trace(&self) -> Result<&Trace> {
        self.trace.as_ref().ok_or_else(|| Error::Argument {
            operation: "the profiler's results",
            expected: "a recording that has ended: finish the profiler, or ask in `on_trace_ready`"
                .to_owned(),
            found: match self.kwargs.schedule_option {
                Some(_) => format!("none after {} steps of the schedule", self.step),
                None => "one that is still running".to_owned(),
            },
        })
    }

    fn write_into(&self, folder: &Path) -> Result<()> {
        if self.trace.is_none() {
            warn!(
                "the profiler recorded nothing, so `{}` gets no trace",
                folder.display()
            );
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let name = format!("profile_{}.json", self.state.process_index());
        self.export_chrome_trace(folder.join(name))
    }

    fn action_of(&self, step: u64) -> ProfilerAction {
        let schedule: Option<Schedule> = self.kwargs.schedule_option;
        schedule.map_or(ProfilerAction::Record, |schedule| schedule.action(step))
    }

    /// With a schedule each step is a range in the trace.
    fn name_step(&mut self) -> Result<()> {
        if self.kwargs.schedule_option.is_some() {
            let name = format!("ProfilerStep#{}", self.step);
            self.range = Some(ProfileRange::start(&name)?);
        }
        Ok(())
    }

    fn go_to(&mut self, next: ProfilerAction) -> Result<()> {
        use ProfilerAction::{None, Record, RecordAndSave, WarmUp};
        match (self.action, next) {
            (RecordAndSave, _) => self.save()?,
            (Record, None | WarmUp) => {
                warn!("a recording ends where its schedule does not save it");
                self.stop()?;
            }
            (WarmUp, None) => {
                warn!("a profiler warms up for steps that its schedule does not record");
                self.record()?;
                self.stop()?;
            }
            _ => {}
        }
        self.action = next;
        match next {
            None => Ok(()),
            WarmUp => self.prepare(),
            Record | RecordAndSave => self.record(),
        }
    }

    fn prepare(&mut self) -> Result<()> {
        if matches!(self.machine, Machine::Idle) {
            self.machine = Machine::Prepared(PreparedProfiler::new(self.options.clone())?);
        }
        Ok(())
    }

    fn record(&mut self) -> Result<()> {
        self.prepare()?;
        self.machine = match std::mem::replace(&mut self.machine, Machine::Idle) {
            Machine::Prepared(prepared) => Machine::Running(prepared.start()?),
            machine => machine,
        };
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if let Machine::Running(session) = std::mem::replace(&mut self.machine, Machine::Idle) {
            self.trace = Some(Trace {
                profile: session.stop()?,
                written: RefCell::default(),
            });
        }
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        self.stop()?;
        let handler: Option<TraceHandler> = self.kwargs.on_trace_ready.clone();
        handler.map_or(Ok(()), |handler| handler(self))
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let whole = |path| fs::canonicalize(path).ok();
    whole(one).is_some() && whole(one) == whole(other)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::Argument {
        operation: "Profiler",
        expected: "a path that can be written".to_owned(),
        found: format!("`{}`: {error}", path.display()),
    }
}
