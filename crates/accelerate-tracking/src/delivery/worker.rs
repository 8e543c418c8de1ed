//! The thread that sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::spool::{FILES, SpoolReader};
use super::{Failure, Service, Signals, Timing};
use crate::error::{Error, Result};

/// Sends what is in a folder, batch by batch.
pub(super) struct Worker {
    spool: SpoolReader,
    service: Box<dyn Service>,
    timing: Timing,
    signals: Arc<Signals>,
    /// Whether the last attempt failed: it is told once until one succeeds.
    failing: bool,
    /// Whether somebody was told that records are refused.
    has_refused: bool,
    /// Refused records before this number are kept already.
    refused_before: u64,
}

/// What came of one look into the folder.
pub(super) enum Step {
    /// A batch arrived, or what of it the service takes.
    Delivered,
    /// There is nothing to send.
    Idle,
    /// It has to be tried again.
    Failed(Error),
}

impl Worker {
    pub(super) fn new(
        spool: SpoolReader,
        service: Box<dyn Service>,
        timing: Timing,
        signals: Arc<Signals>,
    ) -> Self {
        Self {
            spool,
            service,
            timing,
            signals,
            failing: false,
            has_refused: false,
            refused_before: 0,
        }
    }

    /// Sends until the run is over and everything is delivered, or its time is up.
    pub(super) fn run(mut self) {
        let mut retry = self.timing.first_retry;
        let signals = Arc::clone(&self.signals);
        loop {
            let end = {
                let mut state = signals.state();
                state.more = false;
                state.end
            };
            match self.step() {
                Step::Delivered => {
                    retry = self.timing.first_retry;
                    self.gather();
                }
                Step::Idle if end.is_some() => {
                    self.remove();
                    signals.change(|state| state.done = true);
                    return;
                }
                Step::Idle => self.idle(),
                Step::Failed(error) => {
                    self.tell(&error);
                    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        break;
                    }
                    let pause = left.map_or(retry, |left| left.min(retry));
                    // The end of the run is a reason to try at once, the first time.
                    signals.wait(pause, |state| state.end != end);
                    retry = (retry * 2).min(self.timing.longest_retry);
                }
            }
        }
        signals.change(|state| state.done = true);
    }

    /// Sends one batch.
    pub(super) fn step(&mut self) -> Step {
        match self.try_step() {
            Ok(step) => step,
            Err(error) => Step::Failed(error),
        }
    }

    fn try_step(&mut self) -> Result<Step> {
        let records = self.spool.next_batch()?;
        if records.is_empty() {
            return Ok(Step::Idle);
        }
        let first = self.spool.session().records;
        match self.deliver(&records, first) {
            Ok(()) => {}
            Err(Failure::Later(error)) => {
                // The service may have got further than before, such as to have made the run.
                self.spool.keep(self.service.session())?;
                return Ok(Step::Failed(error));
            }
            Err(Failure::Refused(error)) if records.len() == 1 => {
                self.refuse(records.first(), &error)?;
            }
            Err(Failure::Refused(_)) => {
                if let Some(error) = self.one_by_one(&records, first)? {
                    return Ok(Step::Failed(error));
                }
            }
        }
        self.failing = false;
        self.spool.delivered(self.service.session())?;
        Ok(Step::Delivered)
    }

    fn deliver(&mut self, records: &[Json], first: u64) -> Result<(), Failure> {
        let files = self.spool.folder().join(FILES);
        self.service.deliver(records, first, &files)
    }

    /// Finds out which records of a batch are refused, and delivers the others.
    fn one_by_one(&mut self, records: &[Json], first: u64) -> Result<Option<Error>> {
        for (number, record) in (first..).zip(records) {
            match self.deliver(std::slice::from_ref(record), number) {
                Ok(()) => {}
                Err(Failure::Later(error)) => return Ok(Some(error)),
                Err(Failure::Refused(error)) if number >= self.refused_before => {
                    self.refuse(Some(record), &error)?;
                    self.refused_before = number + 1;
                }
                // Kept when the batch was tried before.
                Err(Failure::Refused(_)) => {}
            }
        }
        Ok(None)
    }

    /// Keeps what the service does not take, and says so once.
    fn refuse(&mut self, record: Option<&Json>, error: &Error) -> Result<()> {
        if std::mem::replace(&mut self.has_refused, true) {
            tracing::debug!("{error}");
        } else {
            tracing::warn!(
                "{error}; what is refused is kept in `{}`",
                self.spool.folder().display()
            );
        }
        match record {
            Some(record) => self.spool.refused(record, &error.to_string()),
            None => Ok(()),
        }
    }

    /// Says that the service is away, once.
    fn tell(&mut self, error: &Error) {
        if self.failing {
            tracing::debug!("{error}");
        } else {
            tracing::warn!("{error}; what is logged is kept and sent again");
        }
        self.failing = true;
    }

    /// Lets records come together, unless the run ends.
    fn gather(&self) {
        self.signals
            .wait(self.timing.gather, |state| state.end.is_some());
    }

    /// Waits for records; from time to time tells the service that the run goes on.
    fn idle(&mut self) {
        let begun = Instant::now();
        self.signals.wait(self.timing.keep_alive, |state| {
            state.more || state.end.is_some()
        });
        if begun.elapsed() >= self.timing.keep_alive
            && let Err(Failure::Later(error) | Failure::Refused(error)) = self.service.keep_alive()
        {
            tracing::debug!("{error}");
        }
        // One call of `log` seldom comes alone.
        self.signals
            .wait(self.timing.gather.min(Duration::from_millis(50)), |state| {
                state.end.is_some()
            });
    }

    /// Removes the folder, in which nothing is left to be delivered.
    pub(super) fn remove(self) {
        if let Err(error) = self.spool.remove() {
            tracing::debug!("{error}");
        }
    }
}
