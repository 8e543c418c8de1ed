use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::IterableDataset;
use super::batcher::{Batcher, Part, StreamSource, Watch};
use super::turns::Turns;
use crate::data::collate::Collate;
use crate::data::crew::{Bench, Crew, OnDuty};
use crate::data::worker::{WorkerInfo, WorkerOptions, become_worker};
use crate::{Error, Result};

/// The part of an epoch that one worker reads.
#[derive(Debug)]
pub(super) struct PartTask {
    info: WorkerInfo,
    passed_over: usize,
}

/// The worker threads of one epoch over a stream.
///
/// Each reads a part of its own and makes batches of it; batches are handed out in turn,
/// one of each worker. A worker whose part has ended is left out.
pub(super) struct StreamWorkers<B: 'static> {
    /// In the order in which their next batches are handed out.
    order: VecDeque<usize>,
    workers: OnDuty<PartTask, B>,
    timeout: Option<Duration>,
}

impl<B: Send + 'static> StreamWorkers<B> {
    /// Starts one thread for each part, each up to `prefetch_factor` batches ahead, where
    /// `turns` says.
    pub(super) fn start<D, C>(
        source: &Arc<StreamSource<D, C>>,
        turns: &Turns,
        options: &WorkerOptions,
        base_seed: u64,
    ) -> Result<Self>
    where
        D: IterableDataset + 'static,
        C: Collate<D::Item, Batch = B> + 'static,
    {
        let num_workers = turns.parts.len();
        let workers = OnDuty::call(options.bunk.as_ref(), num_workers, || {
            let source = Arc::clone(source);
            Crew::start(num_workers, options.prefetch_factor, move |task, bench| {
                work(&source, &task, bench);
            })
        })?;
        for (id, &passed_over) in turns.parts.iter().enumerate() {
            let info = WorkerInfo {
                id,
                num_workers,
                seed: base_seed.wrapping_add(id as u64),
            };
            workers.give(id, PartTask { info, passed_over });
        }
        Ok(Self {
            order: turns.order(),
            workers,
            timeout: options.timeout,
        })
    }

    /// The next batch, with the part that it is of.
    pub(super) fn next_of_part(&mut self) -> Option<(usize, Result<B>)> {
        while let Some(part) = self.order.pop_front() {
            let Some(batch) = self.workers.take(part, self.timeout) else {
                continue;
            };
            match batch {
                // Nothing comes in order after a batch that does not come.
                Err(Error::WorkerTimeout { .. }) => self.order.clear(),
                _ => self.order.push_back(part),
            }
            return Some((part, batch));
        }
        None
    }
}

fn work<D: IterableDataset, C: Collate<D::Item>>(
    source: &StreamSource<D, C>,
    task: &PartTask,
    bench: &Bench<'_, C::Batch>,
) {
    become_worker(task.info);
    let part = Part {
        num: task.info.num_workers,
        index: task.info.id,
    };
    let mut batches = Batcher::start(source, part, task.passed_over);
    while let Some(batch) = batches.next_guarded(bench) {
        if !bench.hand_over(batch) {
            return;
        }
    }
    bench.end();
}

impl<B> Watch for Bench<'_, B> {
    fn is_cancelled(&self) -> bool {
        Bench::is_cancelled(self)
    }

    fn reads(&self, number: usize) {
        self.doing.reads(number);
    }

    fn collates(&self) {
        self.doing.collates();
    }
}
