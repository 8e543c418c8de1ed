//! The thread that writes the steps of a rank into the run, and compares ranks.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use accelerate_torch::Store;
use accelerate_tracking::Local;
use accelerate_tracking::run::{RankWriter, Severity, StepMetrics};

use super::board::{Board, Pace};
use super::memory::MemoryUse;
use super::recorder::{News, Place, RunPlace};
use crate::Error;

/// Where the rank that writes the run says where it lies.
const RUN_KEY: &str = "accelerate/steps/run";

/// How often memory is read, and how often other ranks look for a run.
const SECOND: Duration = Duration::from_secs(1);

/// How many lines wait for a run to be found.
const UNWRITTEN: usize = 64;

/// How often stragglers are named.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// What the thread knows.
pub(super) struct Observer {
    place: Place,
    store: Option<Store>,
    run: Option<RunPlace>,
    file: RunFile,
    unwritten: VecDeque<(StepMetrics, Instant)>,
    memory: Option<(MemoryUse, Instant)>,
    pace: Pace,
    board: Board,
    warned: Option<Instant>,
}

/// The file of this rank.
enum RunFile {
    /// Not found yet, when last looked for.
    Unknown(Option<Instant>),
    Open(RankWriter),
    /// It cannot be written, as on another machine that has not the folder.
    None,
}

impl Observer {
    pub(super) fn new(mut place: Place) -> Self {
        let group = place.group.take();
        // A connection of its own: nobody else waits for what is asked here.
        let store = group.and_then(|group| group.store().reconnect().ok());
        Self {
            board: Board::new(place.world),
            place,
            store,
            run: None,
            file: RunFile::Unknown(None),
            unwritten: VecDeque::new(),
            memory: None,
            pace: Pace::default(),
            warned: None,
        }
    }

    /// Works until nobody sends any more.
    pub(super) fn run(mut self, news: &Receiver<News>) {
        let mut next = Instant::now() + self.place.exchange_every;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            match news.recv_timeout(left) {
                Ok(News::Steps(steps, count, at)) => self.take(steps, count, at),
                Ok(News::Run(run)) => self.begin(run),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= next {
                self.exchange();
                next = Instant::now() + self.place.exchange_every;
            }
        }
    }

    fn begin(&mut self, run: RunPlace) {
        self.file = open(&run.folder, self.place.rank);
        if let Some(store) = &self.store
            && let Some(folder) = run.folder.to_str()
            && let Err(error) = store.set(RUN_KEY, folder.as_bytes())
        {
            tracing::debug!("other ranks do not learn where the run lies: {error}");
        }
        self.run = Some(run);
    }

    fn take(&mut self, mut steps: StepMetrics, count: u32, at: Instant) {
        self.pace.add(&steps.split, count);
        let memory = self.memory();
        (steps.memory_bytes, steps.peak_memory_bytes) = (memory.now, memory.peak);
        if self.unwritten.len() == UNWRITTEN {
            self.unwritten.pop_front();
        }
        self.unwritten.push_back((steps, at));
        self.look_for_run();
        self.write();
    }

    fn memory(&mut self) -> MemoryUse {
        match self.memory {
            Some((memory, at)) if at.elapsed() < SECOND => memory,
            _ => {
                let memory = MemoryUse::on(self.place.device);
                self.memory = Some((memory, Instant::now()));
                memory
            }
        }
    }

    /// Looks where the writing rank says that the run is, now and then.
    fn look_for_run(&mut self) {
        let RunFile::Unknown(looked) = &mut self.file else {
            return;
        };
        if looked.is_some_and(|at| at.elapsed() < SECOND / 4) {
            return;
        }
        *looked = Some(Instant::now());
        let Some(store) = &self.store else { return };
        if let Ok(true) = store.contains(RUN_KEY)
            && let Ok(folder) = store.get_text(RUN_KEY, SECOND)
        {
            self.file = open(&PathBuf::from(folder), self.place.rank);
        }
    }

    fn write(&mut self) {
        match &mut self.file {
            RunFile::Unknown(_) => {}
            RunFile::None => self.unwritten.clear(),
            RunFile::Open(writer) => {
                for (mut steps, at) in self.unwritten.drain(..) {
                    steps.t = writer.elapsed() - at.elapsed().as_secs_f64();
                    if let Err(error) = writer.write(&steps) {
                        // The disk may have room again later.
                        let error = Error::from(error).with_causes();
                        tracing::debug!("the times of a step were not written: {error}");
                    }
                }
            }
        }
    }

    /// Tells the others how fast this rank is; rank 0 compares.
    fn exchange(&mut self) {
        let Some(store) = &self.store else { return };
        if let Some(pace) = self.pace.take() {
            self.board.post(store, self.place.rank, pace);
        }
        if self.place.rank != 0 {
            return;
        }
        let Some(found) = self.board.stragglers(store) else {
            return;
        };
        let is_early = |at: Instant| at.elapsed() < BETWEEN_WARNINGS;
        if self.warned.is_some_and(is_early) {
            return;
        }
        self.warned = Some(Instant::now());
        for straggler in found {
            let text = straggler.to_string();
            tracing::warn!(straggler = straggler.rank, "{text}");
            if let Some(run) = &self.run {
                let event =
                    |local: &mut Local| local.event(Severity::Warning, straggler.rank, &text);
                // The run may have ended meanwhile; the warning was given in any case.
                let _ = run.tracker.with_inner(event);
            }
        }
    }
}

fn open(folder: &Path, rank: usize) -> RunFile {
    match RankWriter::open(folder, rank) {
        Ok(writer) => RunFile::Open(writer),
        Err(error) => {
            let error = Error::from(error).with_causes();
            tracing::info!(rank, "this rank adds no times of steps to the run: {error}");
            RunFile::None
        }
    }
}
