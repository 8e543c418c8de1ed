//! The thread on which weights are brought.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use accelerate_formats::MappedBytes;
use accelerate_torch::storage;
use accelerate_torch::stream::{SideStream, used_here};
use tch::{Device, Tensor};

use super::source::{Source, Wanted, tensor_bytes};
use crate::{Error, Result};

/// Brings weights on a thread of its own, which ends with this.
#[derive(Debug)]
pub(super) struct Worker {
    requests: Option<Sender<Request>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked for; done in order.
#[derive(Debug)]
pub(super) enum Request {
    Bring(Block),
    /// Pages that nobody needs soon.
    Forget(Vec<MappedBytes>),
}

/// The weights of one block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) number: usize,
    /// Weights that are used where they lie, to be read from disk.
    pub(super) pages: Vec<MappedBytes>,
    /// Weights that have to be made: cast, or moved to a device.
    pub(super) items: Vec<Item>,
}

/// One weight that has to be made.
#[derive(Debug)]
pub(super) struct Item {
    /// The number of its slot.
    pub(super) key: usize,
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) wanted: Wanted,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: HashMap<usize, Result<Tensor>>,
    /// Asked for and not made yet.
    pending: HashSet<usize>,
    /// The blocks that are still wanted.
    window: HashSet<usize>,
    /// Memory of weights that are done with, for the next ones.
    spare: Vec<Tensor>,
    /// How many bytes of that are kept.
    spare_limit: u64,
    /// The thread is gone.
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Starts the thread. It keeps up to `spare_limit` bytes of memory for the next weights.
    pub(super) fn start(spare_limit: u64) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.lock().spare_limit = spare_limit;
        let (sender, receiver) = channel();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("prefetch".to_owned())
            .spawn(move || work(&receiver, &theirs))
            .map_err(|source| Error::ThreadStart {
                purpose: "brings weights before they are needed",
                source,
            })?;
        Ok(Self {
            requests: Some(sender),
            shared,
            thread: Some(thread),
        })
    }

    /// Says which blocks are wanted from now on; what was made for others is thrown away.
    pub(super) fn set_window(&self, window: &[usize], dropped: &[usize]) {
        let mut state = self.shared.lock();
        state.window = window.iter().copied().collect();
        for key in dropped {
            state.pending.remove(key);
            if let Some(Ok(tensor)) = state.ready.remove(key) {
                state.keep_spare(tensor);
            }
        }
    }

    /// Asks for something; a thread that is gone does nothing.
    pub(super) fn ask(&self, request: Request) {
        if let Request::Bring(block) = &request {
            let keys = block.items.iter().map(|item| item.key);
            self.shared.lock().pending.extend(keys);
        }
        if let Some(requests) = &self.requests {
            let _gone = requests.send(request);
        }
    }

    /// The weight of this slot, waited for if it is on its way; none if nobody asked for it.
    pub(super) fn take(&self, key: usize) -> Result<Option<Tensor>> {
        let mut state = self.shared.lock();
        loop {
            if let Some(made) = state.ready.remove(&key) {
                let made = made?;
                used_here(&made)?;
                return Ok(Some(made));
            }
            if state.closed || !state.pending.contains(&key) {
                return Ok(None);
            }
            let waited = self.shared.arrived.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the memory of a weight that is done with, unless somebody else still looks at it.
    pub(super) fn recycle(&self, tensor: Tensor) {
        if storage::use_count(&tensor).is_ok_and(|users| users == 1) {
            self.shared.lock().keep_spare(tensor);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The thread ends when there is nothing more to come, after what it is at.
        self.shared.lock().window.clear();
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl State {
    fn keep_spare(&mut self, tensor: Tensor) {
        // Allocators of accelerators keep blocks themselves.
        if tensor.device() != Device::Cpu {
            return;
        }
        self.spare.push(tensor);
        while self.spare.iter().map(tensor_bytes).sum::<u64>() > self.spare_limit {
            drop(self.spare.remove(0));
        }
    }

    fn take_spare(&mut self, item: &Item) -> Option<Tensor> {
        let shape = item.source.shape(&item.name).ok()?;
        let fits = |tensor: &Tensor| {
            tensor.device() == item.wanted.device
                && tensor.f_kind().is_ok_and(|kind| kind == item.wanted.kind)
                && tensor.size() == shape
        };
        let place = self.spare.iter().position(fits)?;
        Some(self.spare.swap_remove(place))
    }
}

/// Marks the thread as gone, however it ends, so that nobody waits for it.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.arrived.notify_all();
    }
}

fn work(requests: &Receiver<Request>, shared: &Shared) {
    let _close = Close(shared);
    let mut streams = Streams::default();
    for request in requests {
        match request {
            Request::Forget(pages) => pages.iter().for_each(MappedBytes::forget),
            Request::Bring(block) => bring(block, shared, &mut streams),
        }
    }
}

/// On accelerators, copies go beside what is computed.
#[derive(Default)]
struct Streams(Vec<(Device, SideStream)>);

impl Streams {
    fn make(&mut self, item: &Item, buffer: Option<Tensor>) -> Result<Tensor> {
        let make = || item.source.made(&item.name, item.wanted, buffer);
        let device = item.wanted.device;
        if !matches!(device, Device::Cuda(_)) {
            return make();
        }
        if !self.0.iter().any(|(known, _)| *known == device) {
            self.0.push((device, SideStream::new(device)?));
        }
        match self.0.iter().find(|(known, _)| *known == device) {
            Some((_, stream)) => stream.run(make)?,
            None => make(),
        }
    }
}

fn bring(block: Block, shared: &Shared, streams: &mut Streams) {
    let is_wanted = || shared.lock().window.contains(&block.number);
    if is_wanted() {
        // All at once: the disk is given a queue, not one request after another.
        let of_items = block.items.iter().filter_map(|item| item.source.mapped());
        block
            .pages
            .iter()
            .chain(of_items)
            .for_each(MappedBytes::will_need);
    }
    for pages in &block.pages {
        if is_wanted() {
            pages.populate();
        }
    }
    for item in block.items {
        let mut state = shared.lock();
        if !state.pending.contains(&item.key) {
            continue;
        }
        if !state.window.contains(&block.number) {
            state.pending.remove(&item.key);
            shared.arrived.notify_all();
            continue;
        }
        let buffer = state.take_spare(&item);
        drop(state);
        let made = streams.make(&item, buffer);
        let mut state = shared.lock();
        // Nobody may want it any more.
        if state.pending.remove(&item.key) {
            state.ready.insert(item.key, made);
        }
        shared.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn item(key: usize, value: f32) -> Item {
        Item {
            key,
            name: format!("w{key}"),
            source: Source::Memory(Tensor::from_slice(&[value, value])),
            wanted: Wanted {
                kind: Kind::Double,
                device: Device::Cpu,
            },
        }
    }

    fn block(number: usize, items: Vec<Item>) -> Request {
        Request::Bring(Block {
            number,
            pages: Vec::new(),
            items,
        })
    }

    #[test]
    fn what_is_asked_for_comes_and_its_memory_is_used_again() -> Result<()> {
        let worker = Worker::start(1 << 20)?;
        worker.set_window(&[0], &[]);
        worker.ask(block(0, vec![item(0, 1.0)]));
        let first = worker.take(0)?.unwrap();
        assert_eq!(
            (first.kind(), first.double_value(&[1])),
            (Kind::Double, 1.0)
        );
        assert!(worker.take(0)?.is_none());
        let address = first.data_ptr().addr();
        worker.recycle(first);
        worker.ask(block(0, vec![item(1, 2.0)]));
        let second = worker.take(1)?.unwrap();
        assert_eq!(second.data_ptr().addr(), address);
        // Somebody looks at it still, so it is nobody else's.
        let view = second.view([1, 2]);
        worker.recycle(second);
        worker.ask(block(0, vec![item(2, 3.0)]));
        assert_ne!(worker.take(2)?.unwrap().data_ptr().addr(), address);
        assert_eq!(view.double_value(&[0, 0]), 2.0);
        Ok(())
    }

    #[test]
    fn nobody_waits_for_a_block_that_is_not_wanted_any_more() -> Result<()> {
        let worker = Worker::start(0)?;
        worker.set_window(&[1], &[]);
        worker.ask(block(0, vec![item(0, 1.0)]));
        worker.ask(block(1, vec![item(1, 1.0)]));
        assert!(worker.take(0)?.is_none());
        assert!(worker.take(1)?.is_some());
        Ok(())
    }

    #[test]
    fn a_weight_that_cannot_be_made_is_an_error_where_it_is_taken() -> Result<()> {
        let worker = Worker::start(0)?;
        worker.set_window(&[0], &[]);
        let mut absent = item(0, 1.0);
        absent.wanted.device = Device::Cuda(99);
        worker.ask(block(0, vec![absent]));
        assert!(worker.take(0).is_err());
        Ok(())
    }
}
