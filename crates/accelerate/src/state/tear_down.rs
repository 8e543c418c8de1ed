//! The end of a job: ranks take leave of each other, within a deadline.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{ProcessGroup, Store};

use super::presence::{self, LEFT, PRESENT};
use super::{PartialState, RollCall};
use crate::Result;

/// How long the ranks that come first wait for the others.
const GRACE: Duration = Duration::from_secs(10);
/// How often is looked whether all have come.
const LOOK: Duration = Duration::from_millis(5);
/// How often is asked whether those that have not come still live.
const ASK: Duration = Duration::from_millis(200);
/// How long the last question may take, over the deadline.
const LAST_ANSWER: Duration = Duration::from_secs(3);

impl PartialState {
    /// Ends the communication between ranks, and waits up to ten seconds for the others.
    ///
    /// A rank that ends alone pulls connections from under ranks that still need them, so
    /// the ranks leave together. Whoever has ended already is not waited for. What is sent
    /// after this is refused; rank, world and device stay readable. The second call does
    /// nothing, as does the call on a process by itself.
    ///
    /// Gives back who did not come. That is logged as a warning and is no error: the work
    /// of this rank is done.
    ///
    /// # Collective
    /// Every rank calls this, as its last operation.
    ///
    /// # Errors
    /// What a backend could not finish.
    ///
    /// # Source
    /// `PartialState.destroy_process_group`. Differs: it waits for the others within a
    /// deadline, and there is no `fork_launched` exception, as no launcher here forks.
    pub fn destroy_process_group(&self) -> Result<RollCall> {
        self.destroy_process_group_within(GRACE)
    }

    /// As [`destroy_process_group`](Self::destroy_process_group), with another deadline.
    ///
    /// # Errors
    /// As [`destroy_process_group`](Self::destroy_process_group).
    pub fn destroy_process_group_within(&self, grace: Duration) -> Result<RollCall> {
        let Some(group) = self.process_group().filter(|_| self.begin_to_leave()) else {
            return Ok(RollCall::default());
        };
        let end = Instant::now() + grace;
        let absent = self.take_leave(group, grace);
        if !absent.is_empty() {
            tracing::warn!(
                rank = self.process_index(),
                "left the job without waiting any longer: {absent}"
            );
        }
        shut_down(group, absent.is_empty(), end)?;
        Ok(absent)
    }

    /// Says goodbye and waits until all have; gives back who has not.
    fn take_leave(&self, group: &ProcessGroup, grace: Duration) -> RollCall {
        let (own, world) = (self.process_index(), self.num_processes());
        let (tell, told) = mpsc::channel();
        let (shared, host) = (group.clone(), self.store_host().to_owned());
        thread::spawn(move || {
            let _ = tell.send(wait_for_others(shared.store(), &host, own, world, grace));
        });
        // Where the store is stopped, its thread waits on while this process ends.
        told.recv_timeout(grace.saturating_add(LAST_ANSWER))
            .unwrap_or_else(|_| RollCall {
                silent: self.store_rank().into_iter().collect(),
                ..Default::default()
            })
    }
}

/// Waits until all ranks have left, or those that have not are gone, or time is over.
fn wait_for_others(
    store: &Store,
    host: &str,
    own: usize,
    world: usize,
    grace: Duration,
) -> RollCall {
    let begin = Instant::now();
    let mut next_question = ASK / 4;
    let said = store
        .set(&presence::left_key(own), b"1")
        .and_then(|()| store.add(LEFT, 1));
    let Ok(mut left) = said else {
        return after_the_store(own);
    };
    let Ok(present) = store.add(PRESENT, 0) else {
        return after_the_store(own);
    };
    while left < present {
        let waited = begin.elapsed();
        if waited >= next_question || waited >= grace {
            next_question = waited + ASK;
            let Ok(answers) = presence::ask_all(store, host, own, world, presence::CALLS) else {
                // Rank 0 leaves when all have come, and the store with it.
                return RollCall::default();
            };
            let roll = RollCall::of(&answers);
            if roll.at_work.is_empty() || waited >= grace {
                return roll;
            }
        }
        thread::sleep(LOOK.min(grace));
        match store.add(LEFT, 0) {
            Ok(count) => left = count,
            Err(_) => return RollCall::default(),
        }
    }
    RollCall::default()
}

/// A store that is gone before this rank could say goodbye: its server did not wait.
fn after_the_store(own: usize) -> RollCall {
    RollCall {
        ended: if own == 0 { Vec::new() } else { vec![0] },
        ..Default::default()
    }
}

/// Ends the backends; one that waits for a rank that is gone is left behind.
fn shut_down(group: &ProcessGroup, complete: bool, end: Instant) -> Result<()> {
    let (tell, told) = mpsc::channel();
    let group = group.clone();
    thread::spawn(move || {
        let ended = if complete {
            group.shutdown()
        } else {
            group.abort()
        };
        let _ = tell.send(ended);
    });
    let left = end.saturating_duration_since(Instant::now()).max(ASK);
    match told.recv_timeout(left) {
        Ok(ended) => Ok(ended?),
        Err(_) => {
            tracing::warn!("a communication backend did not end in time and is left behind");
            Ok(())
        }
    }
}

/// Gives a group back without waiting for transfers that will not end.
pub(super) fn release(group: ProcessGroup) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        drop(group);
        let _ = tell.send(());
    });
    let _ = told.recv_timeout(GRACE);
}
