use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use tch::Device;

use super::batch_sampler::BatchIndices;
use super::collate::Collate;
use super::dataset::Dataset;
use crate::tree::Tree;
use crate::{Error, Result};

/// Who reads a sample: for data sets whose samples are made with random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The worker's number, below `num_workers`.
    pub id: usize,
    /// How many workers this epoch has.
    pub num_workers: usize,
    /// A seed for this worker and epoch, drawn from the loader's generator.
    pub seed: u64,
}

thread_local! {
    static WORKER: Cell<Option<WorkerInfo>> = const { Cell::new(None) };
}

/// The loader's worker that the current thread is, if it is one.
#[must_use]
pub fn worker_info() -> Option<WorkerInfo> {
    WORKER.get()
}

/// Makes the current thread the worker that `info` tells of.
pub(super) fn become_worker(info: WorkerInfo) {
    WORKER.set(Some(info));
}

/// What workers share: where samples come from and how they become a batch.
#[derive(Debug)]
pub(super) struct Source<D, C> {
    pub(super) dataset: D,
    pub(super) collate: C,
    /// Whether batches are put into pinned memory, which needs CUDA.
    pub(super) pin_memory: bool,
}

impl<D: Dataset, C: Collate<D::Item>> Source<D, C> {
    /// Reads and collates one batch in the caller's thread.
    pub(super) fn fetch(&self, indices: &[usize]) -> Result<C::Batch> {
        let items = indices
            .iter()
            .map(|&index| {
                self.dataset
                    .get(index)
                    .map_err(|error| sample_error(index, error))
            })
            .collect::<Result<Vec<_>>>()?;
        self.collate
            .collate(items)
            .and_then(|batch| self.pin(batch))
            .map_err(|error| collate_error(indices, error))
    }

    /// Moves a batch into memory that a GPU can read while the program goes on.
    fn pin(&self, mut batch: C::Batch) -> Result<C::Batch> {
        if self.pin_memory {
            batch.visit_mut(&mut |leaf| {
                if leaf.device() == Device::Cpu {
                    *leaf = leaf.f_pin_memory(Device::Cuda(0))?;
                }
                Ok(())
            })?;
        }
        Ok(batch)
    }

    /// As [`fetch`](Self::fetch), with panics as errors; `None` once nobody waits any more.
    fn fetch_guarded(&self, indices: &[usize], stop: &AtomicBool) -> Option<Result<C::Batch>> {
        let mut items = Vec::with_capacity(indices.len());
        for &index in indices {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            match catch_unwind(AssertUnwindSafe(|| self.dataset.get(index))) {
                Ok(Ok(item)) => items.push(item),
                Ok(Err(error)) => return Some(Err(sample_error(index, error))),
                Err(panic) => {
                    return Some(Err(Error::SamplePanicked {
                        index,
                        message: text_of(panic),
                    }));
                }
            }
        }
        let batch = catch_unwind(AssertUnwindSafe(|| self.collate.collate(items)));
        Some(match batch {
            Ok(batch) => batch
                .and_then(|batch| self.pin(batch))
                .map_err(|error| collate_error(indices, error)),
            Err(panic) => Err(Error::CollatePanicked {
                indices: indices.to_vec(),
                message: text_of(panic),
            }),
        })
    }
}

fn sample_error(index: usize, error: Error) -> Error {
    Error::Sample {
        index,
        source: Box::new(error),
    }
}

fn collate_error(indices: &[usize], error: Error) -> Error {
    Error::Collate {
        indices: indices.to_vec(),
        source: Box::new(error),
    }
}

pub(super) fn text_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(_) => "no message".to_owned(),
        },
    }
}

/// One thread with its queue of batches to make and of batches made.
struct Worker<B> {
    tasks: Sender<Vec<usize>>,
    made: Receiver<Result<B>>,
    thread: JoinHandle<()>,
}

/// A batch on its way, in the order of the epoch.
enum Ticket {
    /// The worker with this number makes it.
    Worker(usize),
    /// The sampler failed instead.
    Failed(Error),
}

/// The worker threads of one epoch.
///
/// Batch `i` goes to worker `i mod n`, so which worker reads a sample is fixed.
/// At most `limit` batches are on their way at any time. Dropping the pool makes
/// the workers stop after the sample at hand and waits for them.
pub(super) struct WorkerPool<'a, B> {
    batches: BatchIndices<'a>,
    workers: Vec<Worker<B>>,
    tickets: VecDeque<Ticket>,
    next_worker: usize,
    limit: usize,
    exhausted: bool,
    stop: Arc<AtomicBool>,
}

impl<'a, B: Send + 'static> WorkerPool<'a, B> {
    /// Starts `num_workers` threads, each with up to `prefetch_factor` batches at a time.
    ///
    /// `first` is the number of the first batch within the epoch.
    pub(super) fn start<D, C>(
        source: &Arc<Source<D, C>>,
        batches: BatchIndices<'a>,
        num_workers: usize,
        prefetch_factor: usize,
        base_seed: u64,
        first: usize,
    ) -> Result<Self>
    where
        D: Dataset + 'static,
        C: Collate<D::Item, Batch = B> + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let mut pool = Self {
            batches,
            workers: Vec::with_capacity(num_workers),
            tickets: VecDeque::new(),
            next_worker: first % num_workers,
            limit: num_workers * prefetch_factor,
            exhausted: false,
            stop: Arc::clone(&stop),
        };
        for id in 0..num_workers {
            let seed = base_seed.wrapping_add(id as u64);
            let info = WorkerInfo {
                id,
                num_workers,
                seed,
            };
            pool.workers
                .push(start_worker(Arc::clone(source), info, Arc::clone(&stop))?);
        }
        pool.fill();
        Ok(pool)
    }

    fn fill(&mut self) {
        while !self.exhausted && self.tickets.len() < self.limit {
            match self.batches.next() {
                Some(Ok(indices)) => {
                    let number = self.next_worker;
                    self.next_worker = (number + 1) % self.workers.len();
                    // A worker that is gone is noticed when its batch is waited for.
                    let _sent = self.workers[number].tasks.send(indices);
                    self.tickets.push_back(Ticket::Worker(number));
                }
                Some(Err(error)) => self.tickets.push_back(Ticket::Failed(error)),
                None => self.exhausted = true,
            }
        }
    }
}

impl<B: Send + 'static> Iterator for WorkerPool<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.tickets.pop_front()? {
            Ticket::Worker(number) => self.workers[number]
                .made
                .recv()
                .unwrap_or(Err(Error::WorkerLost { worker: number })),
            Ticket::Failed(error) => Err(error),
        };
        self.fill();
        Some(batch)
    }
}

impl<B> Drop for WorkerPool<'_, B> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Closing every queue first lets all workers wind down at the same time.
        let threads: Vec<_> = self.workers.drain(..).map(|worker| worker.thread).collect();
        for thread in threads {
            let _ended = thread.join();
        }
    }
}

fn start_worker<D, C>(
    source: Arc<Source<D, C>>,
    info: WorkerInfo,
    stop: Arc<AtomicBool>,
) -> Result<Worker<C::Batch>>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    let (tasks, inbox) = channel::<Vec<usize>>();
    let (outbox, made) = channel();
    let thread = thread::Builder::new()
        .name(format!("data-worker-{}", info.id))
        .spawn(move || {
            become_worker(info);
            for indices in inbox {
                let Some(batch) = source.fetch_guarded(&indices, &stop) else {
                    return;
                };
                if outbox.send(batch).is_err() {
                    return;
                }
            }
        })
        .map_err(|source| Error::WorkerStart {
            worker: info.id,
            source,
        })?;
    Ok(Worker {
        tasks,
        made,
        thread,
    })
}
