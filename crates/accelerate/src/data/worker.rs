use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tch::Device;

use super::batch_sampler::BatchIndices;
use super::collate::Collate;
use super::crew::{Bench, Bunk, Crew, OnDuty};
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
    fn fetch_guarded(
        &self,
        indices: &[usize],
        bench: &Bench<'_, C::Batch>,
    ) -> Option<Result<C::Batch>> {
        let mut items = Vec::with_capacity(indices.len());
        for &index in indices {
            if bench.is_cancelled() {
                return None;
            }
            bench.doing.reads(index);
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
        bench.doing.collates();
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

/// How many threads make batches, and how.
#[derive(Debug, Clone)]
pub(super) struct WorkerOptions {
    pub(super) num_workers: usize,
    /// How many batches each worker makes ahead.
    pub(super) prefetch_factor: usize,
    /// How long a batch may be waited for.
    pub(super) timeout: Option<Duration>,
    /// Where workers stay between epochs, if they do.
    pub(super) bunk: Option<Bunk>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            num_workers: 0,
            prefetch_factor: 2,
            timeout: None,
            bunk: None,
        }
    }
}

impl WorkerOptions {
    /// Checks what only worker threads can do.
    pub(super) fn check(&self, builder: &'static str) -> Result<()> {
        let wrong = |expected: &str, found: &str| {
            Err(Error::Argument {
                operation: builder,
                expected: expected.to_owned(),
                found: found.to_owned(),
            })
        };
        if self.prefetch_factor == 0 {
            return wrong("a `prefetch_factor` of at least 1", "0");
        }
        if self.num_workers == 0 && self.bunk.is_some() {
            return wrong("`num_workers` above 0 for `persistent_workers`", "0");
        }
        if self.num_workers == 0 && self.timeout.is_some() {
            return wrong("`num_workers` above 0 for a `timeout`", "0");
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return wrong("a `timeout` above 0", "0");
        }
        Ok(())
    }
}

/// What a worker is told.
#[derive(Debug)]
pub(super) enum MapTask {
    /// An epoch begins.
    Begin(WorkerInfo),
    /// Make a batch of these samples.
    Make(Vec<usize>),
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
/// At most `limit` batches are on their way at any time.
pub(super) struct WorkerPool<'a, B: 'static> {
    batches: BatchIndices<'a>,
    workers: OnDuty<MapTask, B>,
    tickets: VecDeque<Ticket>,
    next_worker: usize,
    limit: usize,
    timeout: Option<Duration>,
    exhausted: bool,
}

impl<'a, B: Send + 'static> WorkerPool<'a, B> {
    /// Starts `num_workers` threads, each with up to `prefetch_factor` batches at a time.
    ///
    /// `first` is the number of the first batch within the epoch.
    pub(super) fn start<D, C>(
        source: &Arc<Source<D, C>>,
        batches: BatchIndices<'a>,
        num_workers: usize,
        options: &WorkerOptions,
        base_seed: u64,
        first: usize,
    ) -> Result<Self>
    where
        D: Dataset + 'static,
        C: Collate<D::Item, Batch = B> + 'static,
    {
        let ahead = options.prefetch_factor;
        let workers = OnDuty::call(options.bunk.as_ref(), num_workers, || {
            let source = Arc::clone(source);
            Crew::start(num_workers, ahead, move |task, bench| match task {
                MapTask::Begin(info) => become_worker(info),
                MapTask::Make(indices) => {
                    if let Some(batch) = source.fetch_guarded(&indices, bench) {
                        bench.hand_over(batch);
                    }
                }
            })
        })?;
        for id in 0..num_workers {
            let seed = base_seed.wrapping_add(id as u64);
            workers.give(
                id,
                MapTask::Begin(WorkerInfo {
                    id,
                    num_workers,
                    seed,
                }),
            );
        }
        let mut pool = Self {
            batches,
            workers,
            tickets: VecDeque::new(),
            next_worker: first % num_workers,
            limit: num_workers * ahead,
            timeout: options.timeout,
            exhausted: false,
        };
        pool.fill();
        Ok(pool)
    }

    fn fill(&mut self) {
        while !self.exhausted && self.tickets.len() < self.limit {
            match self.batches.next() {
                Some(Ok(indices)) => {
                    let number = self.next_worker;
                    self.next_worker = (number + 1) % self.workers.len();
                    self.workers.give(number, MapTask::Make(indices));
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
            Ticket::Worker(number) => self
                .workers
                .take(number, self.timeout)
                .unwrap_or(Err(Error::WorkerLost { worker: number })),
            Ticket::Failed(error) => Err(error),
        };
        if matches!(batch, Err(Error::WorkerTimeout { .. })) {
            // Nothing comes in order after a batch that does not come.
            self.tickets.clear();
            self.exhausted = true;
        }
        self.fill();
        Some(batch)
    }
}
