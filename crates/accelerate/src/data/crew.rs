//! Worker threads with a queue of tasks each, for one epoch or for many.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The epoch of a crew that is to do nothing more.
const NONE: u64 = u64::MAX;

/// Worker threads and their queues.
///
/// What belongs to an epoch that is over is neither done nor handed out. Dropping the crew
/// makes the workers stop after the sample at hand and waits for them, except where one did
/// not answer in time.
pub(super) struct Crew<T, B> {
    workers: Vec<Worker<T, B>>,
    epoch: Arc<AtomicU64>,
    stuck: bool,
}

struct Worker<T, B> {
    tasks: Sender<(u64, T)>,
    made: Receiver<(u64, Made<B>)>,
    doing: Arc<Doing>,
    thread: JoinHandle<()>,
}

/// What a worker hands over.
enum Made<B> {
    Batch(Result<B>),
    /// Its task is done.
    End,
}

/// What a worker has at hand while it works on one task.
pub(super) struct Bench<'w, B> {
    epoch: u64,
    wanted: &'w AtomicU64,
    outbox: &'w SyncSender<(u64, Made<B>)>,
    pub(super) doing: &'w Doing,
}

impl<B> Bench<'_, B> {
    /// Whether nobody waits for this task any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != self.epoch
    }

    /// Hands a batch over; whether somebody waits for more.
    pub(super) fn hand_over(&self, batch: Result<B>) -> bool {
        self.send(Made::Batch(batch))
    }

    /// Says that the task is done.
    pub(super) fn end(&self) {
        self.send(Made::End);
    }

    fn send(&self, made: Made<B>) -> bool {
        !self.is_cancelled() && self.outbox.send((self.epoch, made)).is_ok()
    }
}

/// What a worker is doing, for who waits for it in vain.
#[derive(Debug)]
pub(super) struct Doing(AtomicUsize);

impl Doing {
    const WAITING: usize = usize::MAX;
    const COLLATING: usize = usize::MAX - 1;

    fn new() -> Self {
        Self(AtomicUsize::new(Self::WAITING))
    }

    /// Reads a sample, by its index or its number in the worker's part of a stream.
    pub(super) fn reads(&self, sample: usize) {
        self.0.store(sample, Ordering::Relaxed);
    }

    /// Makes a batch of the samples that were read.
    pub(super) fn collates(&self) {
        self.0.store(Self::COLLATING, Ordering::Relaxed);
    }

    fn waits(&self) {
        self.0.store(Self::WAITING, Ordering::Relaxed);
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.load(Ordering::Relaxed) {
            Self::WAITING => f.write_str("waiting for work"),
            Self::COLLATING => f.write_str("making a batch of the samples that it has read"),
            sample => write!(f, "reading sample {sample}"),
        }
    }
}

impl<T: Send + 'static, B: Send + 'static> Crew<T, B> {
    /// Starts `count` threads that do `work`; each holds up to `queue` batches that nobody took.
    pub(super) fn start(
        count: usize,
        queue: usize,
        work: impl Fn(T, &Bench<'_, B>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut crew = Self {
            workers: Vec::with_capacity(count),
            epoch: Arc::new(AtomicU64::new(0)),
            stuck: false,
        };
        let work = Arc::new(work);
        for id in 0..count {
            let (tasks, inbox) = channel::<(u64, T)>();
            let (outbox, made) = sync_channel(queue);
            let doing = Arc::new(Doing::new());
            let (work, wanted, told) = (
                Arc::clone(&work),
                Arc::clone(&crew.epoch),
                Arc::clone(&doing),
            );
            let thread = thread::Builder::new()
                .name(format!("data-worker-{id}"))
                .spawn(move || {
                    for (epoch, task) in inbox {
                        let bench = Bench {
                            epoch,
                            wanted: &wanted,
                            outbox: &outbox,
                            doing: &told,
                        };
                        if !bench.is_cancelled() {
                            work(task, &bench);
                        }
                        told.waits();
                    }
                })
                .map_err(|source| Error::WorkerStart { worker: id, source })?;
            crew.workers.push(Worker {
                tasks,
                made,
                doing,
                thread,
            });
        }
        Ok(crew)
    }
}

impl<T, B> Crew<T, B> {
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Begins another epoch: what is still under way for the last one is dropped.
    pub(super) fn next_epoch(&mut self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a worker a task of this epoch.
    pub(super) fn give(&self, worker: usize, task: T) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        // A worker that is gone is noticed when its batch is waited for.
        let _sent = self.workers[worker].tasks.send((epoch, task));
    }

    /// The next batch of a worker in this epoch; `None` once its task is done.
    pub(super) fn take(&mut self, worker: usize, timeout: Option<Duration>) -> Option<Result<B>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let wanted = self.epoch.load(Ordering::Relaxed);
        let Worker { made, doing, .. } = &self.workers[worker];
        loop {
            let next = match end {
                None => made.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(end) => made.recv_timeout(end.saturating_duration_since(Instant::now())),
            };
            match next {
                Ok((epoch, Made::Batch(batch))) if epoch == wanted => return Some(batch),
                Ok((epoch, Made::End)) if epoch == wanted => return None,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Err(Error::WorkerLost { worker }));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.stuck = true;
                    return Some(Err(Error::WorkerTimeout {
                        worker,
                        timeout: timeout.unwrap_or_default(),
                        doing: doing.to_string(),
                    }));
                }
            }
        }
    }
}

impl<T, B> Drop for Crew<T, B> {
    fn drop(&mut self) {
        self.epoch.store(NONE, Ordering::Relaxed);
        // Closing every queue first lets all workers wind down at the same time; one that waits
        // for room in its queue wakes up when nobody listens any more.
        let threads: Vec<_> = self.workers.drain(..).map(|worker| worker.thread).collect();
        for thread in threads {
            // One that is stuck must not take its reader with it.
            if !self.stuck || thread.is_finished() {
                let _ended = thread.join();
            }
        }
    }
}

/// Where the crew of a loader waits between epochs.
pub(super) type Bunk = Rc<RefCell<Option<Box<dyn Any>>>>;

/// A crew that works for one epoch, and goes back to its bunk after it, if it has one.
pub(super) struct OnDuty<T: 'static, B: 'static> {
    crew: Option<Crew<T, B>>,
    bunk: Option<Bunk>,
}

impl<T: 'static, B: 'static> OnDuty<T, B> {
    /// The crew of `count` workers that waits in `bunk`, or a new one.
    pub(super) fn call(
        bunk: Option<&Bunk>,
        count: usize,
        start: impl FnOnce() -> Result<Crew<T, B>>,
    ) -> Result<Self> {
        let kept = bunk.and_then(|bunk| bunk.borrow_mut().take());
        let kept = kept.and_then(|crew| crew.downcast::<Crew<T, B>>().ok());
        let mut crew = match kept {
            Some(crew) if crew.len() == count => *crew,
            _ => start()?,
        };
        crew.next_epoch();
        Ok(Self {
            crew: Some(crew),
            bunk: bunk.cloned(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.crew.as_ref().map_or(0, Crew::len)
    }

    pub(super) fn give(&self, worker: usize, task: T) {
        if let Some(crew) = &self.crew {
            crew.give(worker, task);
        }
    }

    pub(super) fn take(&mut self, worker: usize, timeout: Option<Duration>) -> Option<Result<B>> {
        self.crew.as_mut()?.take(worker, timeout)
    }
}

impl<T: 'static, B: 'static> Drop for OnDuty<T, B> {
    fn drop(&mut self) {
        let Some(mut crew) = self.crew.take() else {
            return;
        };
        if let Some(bunk) = &self.bunk
            && !crew.stuck
        {
            crew.next_epoch();
            // Of two loops at a time one keeps its workers.
            bunk.borrow_mut().get_or_insert_with(|| Box::new(crew));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> Result<Crew<usize, usize>> {
        Crew::start(2, 1, |up_to, bench| {
            for number in 0..up_to {
                if bench.is_cancelled() || !bench.hand_over(Ok(number)) {
                    return;
                }
            }
            bench.end();
        })
    }

    #[test]
    fn what_an_epoch_left_is_not_handed_out_in_the_next() -> Result<()> {
        let mut crew = counting()?;
        for up_to in [1000, 3] {
            crew.next_epoch();
            crew.give(1, up_to);
            for number in 0..3 {
                let taken = crew.take(1, Some(Duration::from_secs(30)));
                assert_eq!(taken.transpose()?, Some(number));
            }
        }
        assert!(crew.take(1, None).is_none());
        Ok(())
    }

    #[test]
    fn a_crew_comes_back_to_its_bunk_and_is_called_from_there() -> Result<()> {
        let bunk = Bunk::default();
        let first = OnDuty::call(Some(&bunk), 2, counting)?;
        assert!(bunk.borrow().is_none());
        drop(first);
        assert!(bunk.borrow().is_some());
        let mut again = OnDuty::call(Some(&bunk), 2, || -> Result<Crew<usize, usize>> {
            Err(Error::EmptyDataset)
        })?;
        again.give(0, 1);
        assert_eq!(again.take(0, None).transpose()?, Some(0));
        drop(again);
        // Another number of workers needs another crew.
        assert!(
            OnDuty::call(Some(&bunk), 3, || Crew::<usize, usize>::start(
                3,
                1,
                |_, _| {}
            ))
            .is_ok()
        );
        Ok(())
    }

    #[test]
    fn a_worker_that_is_stuck_is_named_and_not_waited_for() -> Result<()> {
        let start = Instant::now();
        let mut crew = Crew::<Duration, ()>::start(1, 1, |pause, bench| {
            bench.doing.reads(7);
            thread::sleep(pause);
        })?;
        crew.give(0, Duration::from_secs(5));
        let error = crew.take(0, Some(Duration::from_millis(50)));
        let error = error.and_then(Result::err).map(|error| error.to_string());
        assert!(
            error
                .as_ref()
                .is_some_and(|text| text.contains("worker 0") && text.contains("reading sample 7")),
            "{error:?}"
        );
        drop(crew);
        assert!(start.elapsed() < Duration::from_secs(3));
        Ok(())
    }
}
