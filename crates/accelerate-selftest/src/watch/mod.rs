//! Where every rank is, and what happens when a stage takes too long.
//!
//! The thread that runs the stages only says where it is. One thread posts that on the board, again
//! and again, and reads what the others post; another looks at the clock. That one never touches the
//! board while it watches, so a store that does not answer cannot hold it up.

mod deadline;
mod signs;

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::failure::Failure;
use crate::report::Report;

pub(crate) use deadline::Ended;
use signs::View;

/// Where a rank is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The number of the stage, from 0.
    stage: usize,
    stage_name: String,
    /// The number of the step, from 0; the number of steps when all are done.
    step: usize,
    steps: usize,
    step_name: String,
    /// The error with which this rank left the stage.
    error: Option<String>,
}

/// Where this rank is, since when, and until when it may.
#[derive(Debug, Clone)]
struct Here {
    place: Place,
    stage_since: Instant,
    step_since: Instant,
    limit: Option<Duration>,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    rank: usize,
    world: usize,
    here: Mutex<Here>,
    view: Mutex<View>,
    /// How many signs this rank has given.
    beats: AtomicU64,
    report: Arc<Mutex<Report>>,
}

/// The watch over this rank; ends with [`stop`](Self::stop).
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    /// Begins to look at the clock.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(crate) fn start(
        rank: usize,
        world: usize,
        report: Arc<Mutex<Report>>,
    ) -> Result<Self, Failure> {
        let now = Instant::now();
        let here = Here {
            place: Place::default(),
            stage_since: now,
            step_since: now,
            limit: None,
        };
        let mut watch = Self {
            shared: Arc::new(Shared {
                rank,
                world,
                here: Mutex::new(here),
                view: Mutex::new(View::new(world)),
                beats: AtomicU64::new(0),
                report,
            }),
            threads: Vec::new(),
        };
        let shared = Arc::clone(&watch.shared);
        watch.spawn("deadline", move |stopped| deadline::watch(&shared, stopped))?;
        Ok(watch)
    }

    /// Begins to give signs of life, and to see those of the others.
    ///
    /// # Errors
    /// If the board does not answer, or the system has no thread to give.
    pub(crate) fn give_signs(&mut self, board: &Board) -> Result<(), Failure> {
        if self.shared.world == 1 {
            return Ok(());
        }
        let (signs, last_words) = (board.reconnect()?, board.reconnect()?);
        lock(&self.shared.view).connect(last_words);
        let shared = Arc::clone(&self.shared);
        self.spawn("signs of life", move |stopped| {
            signs::give(&shared, &signs, stopped);
        })
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&mpsc::Receiver<()>) + Send + 'static,
    ) -> Result<(), Failure> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&stopped))?;
        self.threads.push((stop, thread));
        Ok(())
    }

    /// A stage begins, which may take `limit`.
    pub(crate) fn enter_stage(&self, stage: usize, name: &str, steps: usize, limit: Duration) {
        let now = Instant::now();
        *lock(&self.shared.here) = Here {
            place: Place {
                stage,
                stage_name: name.to_owned(),
                steps,
                ..Place::default()
            },
            stage_since: now,
            step_since: now,
            limit: Some(limit),
        };
    }

    /// A step of the stage begins.
    pub(crate) fn enter_step(&self, step: usize, name: &str) {
        let mut here = lock(&self.shared.here);
        here.place.step = step;
        name.clone_into(&mut here.place.step_name);
        here.step_since = Instant::now();
    }

    /// Says at once where this rank is: it may not come to the next regular sign.
    ///
    /// # Errors
    /// If the board cannot be reached.
    pub(crate) fn announce(&self, board: &Board) -> Result<(), Failure> {
        match self.shared.world {
            1 => Ok(()),
            _ => signs::post(&self.shared, board),
        }
    }

    /// This rank is done with the stage, in order or with an error, and waits for the others.
    pub(crate) fn leave_steps(&self, error: Option<String>) {
        let mut here = lock(&self.shared.here);
        here.place.step = here.place.steps;
        here.place.error = error;
        here.step_since = Instant::now();
    }

    /// The stage is over on all ranks.
    pub(crate) fn leave_stage(&self) {
        lock(&self.shared.here).limit = None;
    }

    /// Ends the threads.
    pub(crate) fn stop(self) {
        for (stop, thread) in self.threads {
            drop(stop);
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
