//! Two threads beside the training: one reads what is needed soon, one writes what is done with.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use accelerate_torch::scratch::ScratchFile;

use crate::{Error, Result};

/// How many parts may wait to be read. More than that are read when they are touched.
const READS: usize = 64;
/// How many parts may wait to be written: who brings more waits, so that memory does not fill with
/// them.
const WRITES: usize = 2;

/// A part of a file.
#[derive(Debug, Clone)]
pub(super) struct Area {
    pub(super) file: Arc<ScratchFile>,
    pub(super) part: Range<usize>,
}

/// What is done with parts that are no longer needed.
#[derive(Debug)]
pub(super) enum Leaving {
    /// They have changed: they are written, then dropped.
    WriteBack(Vec<Area>),
    /// They are dropped, as far as they are written.
    Forget(Vec<Area>),
}

/// The threads of one folder.
#[derive(Debug)]
pub(super) struct Traffic {
    /// None when they are to end.
    lanes: Option<Lanes>,
    threads: Vec<JoinHandle<()>>,
    failure: Failure,
}

#[derive(Debug)]
struct Lanes {
    reads: SyncSender<Vec<Area>>,
    writes: SyncSender<Leaving>,
}

/// The first failure that nobody was told yet.
type Failure = Arc<Mutex<Option<accelerate_torch::Error>>>;

impl Traffic {
    /// Starts the threads. They read `block` bytes at a time.
    ///
    /// # Errors
    /// [`Error::ThreadStart`].
    pub(super) fn start(block: usize) -> Result<Self> {
        let failure = Failure::default();
        let (reads, to_read) = sync_channel(READS);
        let (writes, to_write) = sync_channel(WRITES);
        let reader = spawn("reads offloaded tensors", {
            let failure = Arc::clone(&failure);
            move || read_all(&to_read, block, &failure)
        })?;
        let writer = spawn("writes offloaded tensors", {
            let failure = Arc::clone(&failure);
            move || write_all(&to_write, &failure)
        })?;
        Ok(Self {
            lanes: Some(Lanes { reads, writes }),
            threads: vec![reader, writer],
            failure,
        })
    }

    /// Begins to read parts. Where many wait already these are left to be read when they are touched.
    pub(super) fn read_ahead(&self, areas: Vec<Area>) -> Result<()> {
        self.told()?;
        let Some(lanes) = self.lanes.as_ref().filter(|_| !areas.is_empty()) else {
            return Ok(());
        };
        match lanes.reads.try_send(areas) {
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => self.lost("reads offloaded tensors"),
        }
    }

    /// Begins to let parts go; waits where as many do as may.
    pub(super) fn leave(&self, leaving: Leaving) -> Result<()> {
        self.told()?;
        match self.lanes.as_ref().map(|lanes| lanes.writes.send(leaving)) {
            Some(Err(_)) => self.lost("writes offloaded tensors"),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// What went wrong since it was last asked.
    fn told(&self) -> Result<()> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match failure.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn lost(&self, purpose: &'static str) -> Result<()> {
        self.told()?;
        Err(Error::Argument {
            operation: "offloading",
            expected: format!("the thread that {purpose}"),
            found: "one that has ended".to_owned(),
        })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.lanes = None;
        for thread in self.threads.drain(..) {
            // It has told its panic itself, and there is nobody left to be told again.
            let _ended = thread.join();
        }
    }
}

fn spawn(purpose: &'static str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let builder = Builder::new().name("accelerate-offload".to_owned());
    builder
        .spawn(run)
        .map_err(|source| Error::ThreadStart { purpose, source })
}

fn read_all(areas: &Receiver<Vec<Area>>, block: usize, failure: &Failure) {
    let mut block = vec![0; block.max(1)];
    while let Ok(areas) = areas.recv() {
        for area in areas {
            note(failure, area.file.read_ahead(area.part, &mut block));
        }
    }
}

fn write_all(leaving: &Receiver<Leaving>, failure: &Failure) {
    while let Ok(leaving) = leaving.recv() {
        match leaving {
            Leaving::WriteBack(areas) => {
                for area in areas {
                    note(failure, area.file.write_back(area.part));
                }
            }
            Leaving::Forget(areas) => {
                for area in areas {
                    note(failure, area.file.forget(area.part));
                }
            }
        }
    }
}

fn note(failure: &Failure, done: accelerate_torch::Result<()>) {
    if let Err(error) = done {
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }
}
