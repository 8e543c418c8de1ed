//! Hands steps to a thread that writes them down and compares ranks.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::ProcessGroup;
use accelerate_tracking::TrackerHandle;
use accelerate_tracking::run::StepMetrics;
use tch::Device;

use super::StepMetricsKwargs;
use super::clock::loss_scale;
use super::measured::Measured;
use super::observer::Observer;
use crate::precision::GradScaler;
use crate::state::PartialState;

/// The time between two lines of one rank, and between two exchanges, at least.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
/// The same once a training has gone on for long: files do not grow without end.
const LONGEST: Duration = Duration::from_secs(5);
/// As good as never, and still a time from now.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How many lines may wait for a slow disk; then some are left out.
const WAITING: usize = 64;

/// How long the end of the training waits for the last lines to be written.
const GRACE: Duration = Duration::from_secs(2);

/// The run of this job, on the rank that writes it.
#[derive(Debug, Clone)]
pub(crate) struct RunPlace {
    pub(crate) folder: PathBuf,
    /// What takes down warnings.
    pub(crate) tracker: TrackerHandle,
}

/// What the thread is told.
#[derive(Debug)]
pub(super) enum News {
    /// The mean of some steps, and how many they were, when the last of them ended.
    Steps(StepMetrics, u32, Instant),
    Run(RunPlace),
}

/// Where this rank is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) device: Device,
    /// None of a process by itself, and at the end.
    pub(super) group: Option<ProcessGroup>,
    pub(super) exchange_every: Duration,
}

/// Gathers steps and sends their mean to a thread, a few times a second.
#[derive(Debug)]
pub(crate) struct Recorder {
    place: Place,
    sums: Measured,
    count: u32,
    /// When the first step that counts ended, and when something was last sent.
    first: Option<Instant>,
    sent: Option<Instant>,
    thread: Thread,
}

#[derive(Debug)]
enum Thread {
    /// Nobody wants to know yet.
    Idle,
    /// The second one says that it has ended.
    Running(SyncSender<News>, Receiver<()>),
    /// It does not start.
    Failed,
}

impl Recorder {
    /// Of this process.
    pub(crate) fn new(state: &PartialState, kwargs: StepMetricsKwargs) -> Self {
        Self {
            place: Place {
                rank: state.process_index(),
                world: state.num_processes(),
                device: state.device(),
                group: state.process_group().cloned(),
                exchange_every: kwargs.exchange_every.clamp(SHORTEST, NEVER),
            },
            sums: Measured::default(),
            count: 0,
            first: None,
            sent: None,
            thread: Thread::Idle,
        }
    }

    /// A step is over.
    pub(super) fn step(&mut self, step: &Measured, scaler: Option<&GradScaler>) {
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        self.sums = self.sums.plus(step);
        self.count += 1;
        // Short programs have nobody to look at them.
        if self.place.group.is_some() && now - first >= self.place.exchange_every {
            self.start();
        }
        let between = ((now - first) / 10_000).clamp(SHORTEST, LONGEST);
        let is_due = self.sent.is_none_or(|sent| now - sent >= between);
        if is_due && matches!(self.thread, Thread::Running(..)) {
            self.send(now, loss_scale(scaler));
        }
    }

    /// A run has begun.
    pub(super) fn begin_run(&mut self, place: Option<RunPlace>) {
        // On other ranks of a job it may be found; there is none elsewhere.
        if place.is_none() && self.place.group.is_none() {
            return;
        }
        self.start();
        if let (Some(place), Thread::Running(sender, _)) = (place, &self.thread) {
            // A thread that is as far behind as that does not write the run either.
            let _ = sender.try_send(News::Run(place));
        }
    }

    /// Sends what is left, and waits a little until it is written.
    pub(super) fn finish(&mut self) {
        let ran = matches!(self.thread, Thread::Running(..));
        if ran && self.count > 0 {
            self.send(Instant::now(), None);
        }
        if let Thread::Running(sender, ended) = std::mem::replace(&mut self.thread, Thread::Idle) {
            drop(sender);
            if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(GRACE) {
                tracing::debug!("the last times of steps are still being written");
            }
        }
        // Behind the end of the job nobody answers.
        self.place.group = None;
        (self.first, self.sent) = (None, None);
    }

    fn send(&mut self, now: Instant, loss_scale: Option<f64>) {
        let Thread::Running(sender, _) = &self.thread else {
            return;
        };
        let mean = StepMetrics {
            loss_scale,
            ..self.sums.over(self.count).metrics()
        };
        // Where the disk is slower than the training some lines are left out.
        let _ = sender.try_send(News::Steps(mean, self.count, now));
        (self.sums, self.count, self.sent) = (Measured::default(), 0, Some(now));
    }

    fn start(&mut self) {
        if !matches!(self.thread, Thread::Idle) {
            return;
        }
        let (sender, news) = mpsc::sync_channel(WAITING);
        let (ended, end) = mpsc::channel();
        let place = self.place.clone();
        let started = thread::Builder::new()
            .name("accelerate-steps".to_owned())
            .spawn(move || {
                Observer::new(place).run(&news);
                // Whoever waits may be gone.
                let _ = ended.send(());
            });
        self.thread = match started {
            Ok(_) => Thread::Running(sender, end),
            Err(error) => {
                tracing::warn!("the times of steps are not written down: {error}");
                Thread::Failed
            }
        };
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}
