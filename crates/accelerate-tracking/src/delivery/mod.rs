//! Bringing records to a service without ever letting the training wait for it.
//!
//! What is logged goes into a file first, by one call to the system; a thread reads the file, sends, and
//! writes down how far it came. So nothing is lost when the service is away, hangs or refuses, or
//! when the process is killed, and memory holds one batch at most. What is not delivered at the end
//! stays in the folder and is sent by the next run beside it, or by [`deliver_left`].
//!
//! A batch whose answer was lost is sent again: services see a record at least once.

mod left;
mod spool;
mod worker;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

pub(crate) use left::send_left_in_background;
pub use left::{Left, deliver_left};
use spool::Spool;
use worker::Worker;

use crate::error::{Error, Result};

/// The folder of what is not delivered yet, in that of files.
pub(crate) const FOLDER: &str = "undelivered";

/// Why a batch did not arrive.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may arrive later: the service is away, overloaded, or does not know the key.
    Later(Error),
    /// The service will never take it.
    Refused(Error),
}

/// Sends records to a service. It is used by one thread.
pub(crate) trait Service: Send {
    /// The name of its tracker.
    fn name(&self) -> &'static str;

    /// What has to be known to go on in another process; no secrets.
    fn session(&self) -> Json;

    /// Sends records in their order. The first has this number, counted from 0, in the run.
    fn deliver(&mut self, records: &[Json], first: u64, files: &Path) -> Result<(), Failure>;

    /// Tells the service that the run goes on although nothing is logged.
    fn keep_alive(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// How patient the thread is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// How long it gathers records before it sends them.
    pub(crate) gather: Duration,
    /// How long it waits after a failure; doubled with each that follows.
    pub(crate) first_retry: Duration,
    /// The longest that becomes.
    pub(crate) longest_retry: Duration,
    /// After how long without records it tells the service that the run goes on.
    pub(crate) keep_alive: Duration,
    /// How long the end of a run waits for what is not delivered.
    pub(crate) drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            gather: Duration::from_secs(1),
            first_retry: Duration::from_millis(500),
            longest_retry: Duration::from_secs(30),
            keep_alive: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

/// What the two threads tell each other.
#[derive(Debug, Default)]
struct Signals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Records were written since the worker looked.
    more: bool,
    /// Until when everything is to be delivered, once no more comes.
    end: Option<Instant>,
    /// The worker has come to its end.
    done: bool,
}

impl Signals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until `is_enough` or the time is over.
    fn wait(&self, at_most: Duration, mut is_enough: impl FnMut(&State) -> bool) {
        let waiting = |state: &mut State| !is_enough(state);
        drop(
            self.changed
                .wait_timeout_while(self.state(), at_most, waiting),
        );
    }
}

/// Takes records and has them delivered.
#[derive(Debug)]
pub(crate) struct Delivery {
    spool: Spool,
    signals: Arc<Signals>,
    timing: Timing,
    service: &'static str,
}

impl Delivery {
    /// Begins a delivery in a new folder of `root`.
    pub(crate) fn start(root: &Path, service: Box<dyn Service>, timing: Timing) -> Result<Self> {
        let name = service.name();
        let spool = Spool::create(root, name, &service.session())?;
        let signals = Arc::new(Signals::default());
        let worker = Worker::new(spool.reader()?, service, timing, Arc::clone(&signals));
        thread::Builder::new()
            .name(format!("deliver-{name}"))
            .spawn(move || worker.run())
            .map_err(|source| Error::Io {
                action: "start the thread that delivers from",
                path: spool.folder().to_owned(),
                source,
            })?;
        Ok(Self {
            spool,
            signals,
            timing,
            service: name,
        })
    }

    /// Takes a record. It is safe when this returns.
    pub(crate) fn record(&mut self, record: &Json) -> Result<()> {
        self.spool.write(record)?;
        self.signals.change(|state| state.more = true);
        Ok(())
    }

    /// Keeps a file that a record speaks of; gives the name to put there.
    pub(crate) fn file(&mut self, ending: &str, bytes: &[u8]) -> Result<String> {
        self.spool.file(ending, bytes)
    }

    /// Waits until everything is delivered, at most so long as the timing says; warns of what is not.
    pub(crate) fn finish(self) -> Result<()> {
        let end = Instant::now() + self.timing.drain;
        self.signals.change(|state| state.end = Some(end));
        // A request that hangs is not waited for: the thread ends with the process.
        self.signals.wait(self.timing.drain, |state| state.done);
        if self.spool.is_left() {
            tracing::warn!(
                "not everything could be delivered to `{}` in {:?}: the rest is kept in `{}`, and the next run \
                 beside it will send it",
                self.service,
                self.timing.drain,
                self.spool.folder().display()
            );
        }
        Ok(())
    }
}

impl Drop for Delivery {
    /// A run that ends without a word leaves its records for the next.
    fn drop(&mut self) {
        self.signals.change(|state| {
            state.end.get_or_insert_with(Instant::now);
        });
    }
}

#[cfg(test)]
mod tests;
