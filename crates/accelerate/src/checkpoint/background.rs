//! Saving while training goes on.
//!
//! The training's thread makes the folder, copies everything into CPU memory and agrees with the
//! other ranks that all could; then it trains on. A thread of each rank writes its part from the
//! copies, and the threads agree by keys of the job's store, over connections of their own: no
//! process group takes part, so nothing comes between the training's collectives. The checkpoint
//! appears, and `latest` moves, when every rank's files are whole, as with a save that is waited for.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use super::agreement::{Agreement, Keys, first_failure, together};
use super::copies::CopyBuffers;
use super::options::{SaveStateOptions, WhileSaving};
use super::placing::Placing;
use super::planned_file::{PlannedFile, write_all};
use super::training_state::TrainingState;
use crate::collectives::gather_object;
use crate::state::PartialState;
use crate::{Error, Result};

/// Counts the saves of this process in the background. All ranks make them in the same order.
static SAVES: AtomicU64 = AtomicU64::new(0);

/// A checkpoint that is being written while training goes on: a shared handle.
///
/// Dropping it changes nothing. A failure that nobody waits for is reported by the next save or by
/// [`end_training`](crate::Accelerator::end_training); where the accelerator ends without either,
/// it waits for the save and logs a failure.
#[derive(Debug, Clone)]
pub struct BackgroundSave {
    target: PathBuf,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Debug)]
struct Progress {
    thread: Option<JoinHandle<Result<PathBuf>>>,
    failure: Option<Arc<Error>>,
    reported: bool,
}

impl BackgroundSave {
    fn new(target: PathBuf, thread: JoinHandle<Result<PathBuf>>) -> Self {
        Self {
            target,
            progress: Arc::new(Mutex::new(Progress {
                thread: Some(thread),
                failure: None,
                reported: false,
            })),
        }
    }

    /// Where the checkpoint will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// Whether it is finished on all ranks, well or not.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let progress = match self.progress.try_lock() {
            Ok(progress) => progress,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody waits for it.
            Err(TryLockError::WouldBlock) => return false,
        };
        progress.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the checkpoint is in its place, and answers where.
    ///
    /// No other rank need call this.
    ///
    /// # Errors
    /// [`Error::BackgroundSave`] with what failed here, or
    /// [`Error::OtherRankFailed`] behind it where it was another rank.
    pub fn wait(&self) -> Result<PathBuf> {
        let mut progress = self.finished();
        progress.reported = true;
        match &progress.failure {
            None => Ok(self.target.clone()),
            Some(failure) => Err(self.failed(failure)),
        }
    }

    fn failed(&self, failure: &Arc<Error>) -> Error {
        Error::BackgroundSave {
            path: self.target.clone(),
            source: Arc::clone(failure),
        }
    }

    /// As [`wait`](Self::wait), but a failure that was told before is told no more.
    fn report(&self) -> Result<()> {
        let reported = self.finished().reported;
        match reported {
            true => Ok(()),
            false => self.wait().map(drop),
        }
    }

    /// Waits, and gives the failure that nobody was told of.
    fn unreported(&self) -> Option<Error> {
        let progress = self.finished();
        let failure = progress.failure.as_ref().filter(|_| !progress.reported)?;
        Some(self.failed(failure))
    }

    fn is_told(&self) -> bool {
        let progress = self.finished();
        progress.reported && progress.failure.is_some()
    }

    fn finished(&self) -> MutexGuard<'_, Progress> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = progress.thread.take() {
            progress.failure = match thread.join() {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(Arc::new(error)),
                Err(panic) => Some(Arc::new(panicked(&*panic))),
            };
        }
        progress
    }
}

/// A panic becomes an error, so that the other ranks are told of it. Nothing that `run` changes
/// is looked at behind a panic, except the agreement, which then only gives up.
fn without_panic<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = panic::catch_unwind(AssertUnwindSafe(run));
    done.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Error::SavePanicked {
        message: text.unwrap_or_default(),
    }
}

/// The save of one accelerator that is not settled yet, and the memory for copies.
#[derive(Debug, Default)]
pub(crate) struct BackgroundSaves {
    pending: RefCell<Option<BackgroundSave>>,
    buffers: RefCell<CopyBuffers>,
    /// The number of the last save that opened its keys, which are still in the store.
    last: Cell<Option<u64>>,
}

impl BackgroundSaves {
    /// Waits for the save that is not finished, and reports its failure unless somebody was told.
    pub(crate) fn report(&self) -> Result<()> {
        let pending = self.pending.take();
        pending.map_or(Ok(()), |pending| pending.report())
    }

    /// Waits for the save that is not finished; its failure stays to be reported.
    pub(super) fn wait(&self) {
        if let Some(failure) = self.unreported() {
            tracing::warn!("{}", failure.with_causes());
        }
    }

    fn unreported(&self) -> Option<Error> {
        self.pending.borrow().as_ref()?.unreported()
    }

    /// Gives the memory for copies back.
    pub(crate) fn release(&self) {
        drop(self.buffers.take());
    }

    /// Settles the save before, on all ranks alike. Its failure is an error of all, unless
    /// somebody was told on any of them.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(super) fn make_room(&self, state: &PartialState, choice: WhileSaving) -> Result<()> {
        if choice == WhileSaving::Refuse {
            let pending = self.pending.borrow();
            let busy = pending.as_ref().is_some_and(|save| !save.is_finished());
            let busy = gather_object(state, vec![busy])?;
            let ranks = busy.iter().enumerate();
            let ranks: Vec<usize> = ranks
                .filter(|(_, busy)| **busy)
                .map(|(rank, _)| rank)
                .collect();
            if !ranks.is_empty() {
                return Err(Error::SavePending { ranks });
            }
        }
        let told = self.is_told();
        let own = self.report();
        let all = gather_object(state, vec![(told, own.is_ok())])?;
        if all.iter().any(|&(told, _)| told) {
            // Who waited on one rank knows that the save failed.
            if let Err(failure) = own {
                tracing::warn!("{}", failure.with_causes());
            }
            return Ok(());
        }
        let fine: Vec<bool> = all.into_iter().map(|(_, fine)| fine).collect();
        first_failure(own, &fine)
    }

    /// Waits, and answers whether somebody was told of a failure.
    fn is_told(&self) -> bool {
        let pending = self.pending.borrow();
        pending.as_ref().is_some_and(BackgroundSave::is_told)
    }
}

impl Drop for BackgroundSaves {
    fn drop(&mut self) {
        if let Some(failure) = self.unreported() {
            tracing::error!("{}", failure.with_causes());
        }
    }
}

impl TrainingState<'_> {
    /// Copies everything and lets a thread write it, all ranks together.
    pub(crate) fn save_in_background(
        &self,
        output_dir: Option<&Path>,
        options: SaveStateOptions,
    ) -> Result<BackgroundSave> {
        let save = SAVES.fetch_add(1, Ordering::Relaxed);
        self.saves.make_room(self.state, options.while_saving)?;
        let placing = Placing::begin(self.state, self.project, output_dir)?;
        let ready = self.copies(&placing, options).and_then(|files| {
            let keys = Keys::open(self.state, save, self.saves.last.get())?;
            self.saves.last.set(Some(save));
            Ok((files, keys, Worker::start()?))
        });
        let (files, keys, worker) = together(self.state, ready)?;
        let target = placing.target().to_owned();
        let thread = worker.run(move || {
            let written = without_panic(|| write_all(&files, &placing.folder()));
            drop(files);
            let mut agreement = Agreement::Keys(keys);
            let placed = without_panic(|| placing.finish(written, &mut agreement));
            if placed.is_err() {
                agreement.give_up();
            }
            placed
        });
        self.project.set_iteration(self.project.iteration() + 1);
        let started = BackgroundSave::new(target, thread);
        self.saves.pending.replace(Some(started.clone()));
        Ok(started)
    }

    fn copies(&self, placing: &Placing, options: SaveStateOptions) -> Result<Vec<PlannedFile>> {
        let mut files = self.plan(placing, options)?;
        let mut buffers = self.saves.buffers.borrow_mut();
        buffers.rewind();
        files
            .iter_mut()
            .try_for_each(|file| file.copy_tensors(&mut buffers))?;
        Ok(files)
    }
}

type Job = Box<dyn FnOnce() -> Result<PathBuf> + Send>;

/// A thread that waits for what it is to do, so that ranks can agree before that all have one.
struct Worker {
    thread: JoinHandle<Result<PathBuf>>,
    give: Sender<Job>,
}

impl Worker {
    fn start() -> Result<Self> {
        let (give, job): (Sender<Job>, Receiver<Job>) = channel();
        let thread = thread::Builder::new()
            .name("accelerate-save".to_owned())
            .spawn(move || match job.recv() {
                Ok(job) => job(),
                // Given up before there was something to do; nobody asks.
                Err(_) => Ok(PathBuf::new()),
            })
            .map_err(|source| Error::ThreadStart {
                purpose: "writes a checkpoint",
                source,
            })?;
        Ok(Self { thread, give })
    }

    fn run(
        self,
        job: impl FnOnce() -> Result<PathBuf> + Send + 'static,
    ) -> JoinHandle<Result<PathBuf>> {
        // The thread waits for it.
        let _ = self.give.send(Box::new(job));
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let failed = without_panic::<()>(|| panic!("no room for {}", 7));
        let told = failed.unwrap_err();
        assert!(
            matches!(&told, Error::SavePanicked { message } if message == "no room for 7"),
            "{told}"
        );
        assert_eq!(without_panic(|| Ok(3)).unwrap(), 3);
    }
}
