use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::IterableDataset;
use super::batcher::{Batcher, Part, StreamSource};
use crate::data::collate::Collate;
use crate::data::worker::{WorkerInfo, become_worker};
use crate::{Error, Result};

/// The worker threads of one epoch over a stream.
///
/// Each reads a part of its own and makes batches of it; batches are handed out in turn,
/// one of each worker. A worker whose part has ended is left out. Dropping this makes the
/// workers stop after the sample at hand and waits for them.
pub(super) struct StreamWorkers<B> {
    /// In the order in which their next batches are handed out.
    made: VecDeque<Receiver<Result<B>>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl<B: Send + 'static> StreamWorkers<B> {
    /// Starts `num_workers` threads, each up to `prefetch_factor` batches ahead.
    pub(super) fn start<D, C>(
        source: &Arc<StreamSource<D, C>>,
        num_workers: usize,
        prefetch_factor: usize,
        base_seed: u64,
    ) -> Result<Self>
    where
        D: IterableDataset + 'static,
        C: Collate<D::Item, Batch = B> + 'static,
    {
        let mut workers = Self {
            made: VecDeque::with_capacity(num_workers),
            threads: Vec::with_capacity(num_workers),
            stop: Arc::default(),
        };
        for id in 0..num_workers {
            let info = WorkerInfo {
                id,
                num_workers,
                seed: base_seed.wrapping_add(id as u64),
            };
            let (outbox, made) = sync_channel(prefetch_factor);
            let (source, stop) = (Arc::clone(source), Arc::clone(&workers.stop));
            let thread = thread::Builder::new()
                .name(format!("data-worker-{id}"))
                .spawn(move || work(&source, info, &outbox, &stop))
                .map_err(|source| Error::WorkerStart { worker: id, source })?;
            workers.made.push_back(made);
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

fn work<D: IterableDataset, C: Collate<D::Item>>(
    source: &StreamSource<D, C>,
    info: WorkerInfo,
    outbox: &SyncSender<Result<C::Batch>>,
    stop: &AtomicBool,
) {
    become_worker(info);
    let part = Part {
        num: info.num_workers,
        index: info.id,
    };
    let mut batches = Batcher::start(source, part);
    while let Some(batch) = batches.next_guarded(|| stop.load(Ordering::Relaxed)) {
        if outbox.send(batch).is_err() {
            return;
        }
    }
}

impl<B> Iterator for StreamWorkers<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(made) = self.made.pop_front() {
            if let Ok(batch) = made.recv() {
                self.made.push_back(made);
                return Some(batch);
            }
        }
        None
    }
}

impl<B> Drop for StreamWorkers<B> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A worker that waits for room in its queue wakes up when nobody listens any more.
        self.made.clear();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}
