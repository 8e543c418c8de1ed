//! Where other ranks are, told by notes in the store that they share.
//!
//! In debug mode every rank notes each call that it comes to. Otherwise nothing is noted
//! until a call fails: the ranks that had come to it fail together, each notes so, and
//! those that leave no note are the ones that are missing.

use std::fmt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{self as torch, ExceptionKind, ProcessGroup, Store};

use super::call::{Call, CallRecord};
use super::codec;
use crate::state::PartialState;

/// How long ranks that failed together may take to say so.
const GRACE: Duration = Duration::from_millis(500);
/// How long the store may take in all; who serves it may be gone.
const LIMIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
/// How long a note that is there may take to be read.
const ANSWER: Duration = Duration::from_secs(1);

const LAST: &str = "last";
const FAILED: &str = "failed";

/// What is known of another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankTrace {
    /// Which rank.
    pub rank: usize,
    /// Its last calls, oldest first; empty where nothing is known.
    pub calls: Vec<CallRecord>,
    /// Whether the last of them failed there too.
    pub failed: bool,
}

/// A collective that did not complete, and where the other ranks are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncompleteReport {
    /// The call on this rank.
    pub call: CallRecord,
    /// This process.
    pub rank: usize,
    /// All processes.
    pub world: usize,
    /// The ranks that have not come to it, as far as can be seen.
    pub missing: Vec<usize>,
    /// What is known of each other rank; empty where the store does not answer.
    pub others: Vec<RankTrace>,
    /// The first call of this rank for which others were at another place of the
    /// program; known in debug mode.
    pub apart: Option<CallRecord>,
    /// Whether ranks note what they do.
    pub debug: bool,
}

impl fmt::Display for IncompleteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call, rank, world, ..
        } = self;
        write!(
            f,
            "`{}` did not complete on rank {rank} of {world} (call {}, at {}): ",
            call.operation, call.number, call.site
        )?;
        match self.missing.as_slice() {
            [] if self.others.is_empty() => f.write_str(
                "the store of the ranks does not answer, so where they are is not known; \
                 most likely the process that serves it, rank 0 or the launcher, ended",
            )?,
            [] => f.write_str("every rank came to it; one of them failed or ended there")?,
            [one] => write!(f, "rank {one} did not come")?,
            many => write!(f, "ranks {many:?} did not come")?,
        }
        if self.missing.len() + 1 == *world {
            f.write_str(
                "; if this call stands where only some ranks come, such as under \
                 `is_main_process` or in `on_main_process`, move it out",
            )?;
        }
        let unknown = self.others.iter().any(|other| other.calls.is_empty());
        if unknown && !self.debug {
            f.write_str("; set `ACCELERATE_DEBUG_MODE=true` to see where each rank was last")?;
        }
        for RankTrace {
            rank,
            calls,
            failed,
        } in &self.others
        {
            match (calls.last(), failed) {
                (None, _) => {}
                (Some(last), true) => write!(f, "\n  - Process {rank}: failed in {last}")?,
                (Some(last), false) => write!(f, "\n  - Process {rank}: was last in {last}")?,
            }
        }
        if let Some(apart) = &self.apart {
            write!(
                f,
                "\nranks are at different places of the program since {apart}; \
                 if that is not meant, a call before it was not made by all"
            )?;
        }
        Ok(())
    }
}

/// Whether a failure may be that of another rank.
pub(super) fn is_between_ranks(error: &torch::Error) -> bool {
    match error {
        torch::Error::Timeout { .. } | torch::Error::ConnectionLost { .. } => true,
        torch::Error::Libtorch { kind, .. } => matches!(
            kind,
            ExceptionKind::Network | ExceptionKind::Backend | ExceptionKind::Standard
        ),
        _ => false,
    }
}

/// Notes the last calls of this rank for the others.
pub(super) fn post_last(group: &ProcessGroup, calls: &[CallRecord]) {
    post(group, LAST, calls);
}

/// Notes are worth no failure of their own.
fn post(group: &ProcessGroup, what: &str, calls: &[CallRecord]) {
    let posted = codec::encode("call note", &calls)
        .map(|bytes| group.store().set(&key(what, group.rank()), &bytes));
    if let Ok(Err(error)) | Err(crate::Error::Torch(error)) = posted {
        tracing::debug!(%error, "the other ranks cannot be told where this one is");
    }
}

fn key(what: &str, rank: usize) -> String {
    format!("accelerate/calls/{what}/{rank}")
}

/// Who is missing in a call that failed.
pub(super) fn after_failure(
    state: &PartialState,
    group: &ProcessGroup,
    call: Call,
) -> IncompleteReport {
    let (own, debug) = (state.calls().recent(), state.debug());
    let (copy, number) = (group.clone(), call.number);
    let others = within(LIMIT, move || {
        post(&copy, FAILED, &own);
        let until = Instant::now() + GRACE;
        loop {
            let others = traces(&copy)?;
            // In debug mode ranks said that they came before they could fail.
            if debug || missing(&others, number).is_empty() || Instant::now() >= until {
                return Ok(others);
            }
            thread::sleep(PAUSE);
        }
    });
    report(state, group, call, known(others))
}

/// Who is missing in a call that others are awaited for.
pub(super) fn while_waiting(
    state: &PartialState,
    group: &ProcessGroup,
    call: Call,
) -> IncompleteReport {
    let copy = group.clone();
    let others = within(LIMIT, move || traces(&copy));
    report(state, group, call, known(others))
}

/// Nothing, where the store did not answer.
fn known(others: Option<Result<Vec<RankTrace>, torch::Error>>) -> Vec<RankTrace> {
    others.and_then(Result::ok).unwrap_or_default()
}

fn report(
    state: &PartialState,
    group: &ProcessGroup,
    call: Call,
    others: Vec<RankTrace>,
) -> IncompleteReport {
    IncompleteReport {
        call: call.record(),
        rank: group.rank(),
        world: group.size(),
        missing: missing(&others, call.number),
        others,
        apart: state.calls().apart(),
        debug: state.debug(),
    }
}

fn missing(others: &[RankTrace], number: u64) -> Vec<usize> {
    let came = |other: &RankTrace| other.calls.last().is_some_and(|c| c.number >= number);
    others
        .iter()
        .filter(|other| !came(other))
        .map(|other| other.rank)
        .collect()
}

fn traces(group: &ProcessGroup) -> Result<Vec<RankTrace>, torch::Error> {
    let store = group.store();
    (0..group.size())
        .filter(|&rank| rank != group.rank())
        .map(|rank| {
            let failed = read(store, FAILED, rank)?;
            let last = read(store, LAST, rank)?;
            let number = |calls: &[CallRecord]| calls.last().map_or(0, |call| call.number);
            let is_failed = !failed.is_empty() && number(&failed) >= number(&last);
            Ok(RankTrace {
                rank,
                calls: if is_failed { failed } else { last },
                failed: is_failed,
            })
        })
        .collect()
}

fn read(store: &Store, what: &str, rank: usize) -> Result<Vec<CallRecord>, torch::Error> {
    let key = key(what, rank);
    if !store.contains(&key)? {
        return Ok(Vec::new());
    }
    // A note that cannot be read is as good as none.
    Ok(codec::decode("call note", &store.get(&key, ANSWER)?).unwrap_or_default())
}

/// The answer of `ask`, unless it takes too long.
fn within<R: Send + 'static>(
    limit: Duration,
    ask: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let (tell, told) = mpsc::channel();
    thread::Builder::new()
        .name("whereabouts".to_owned())
        .spawn(move || drop(tell.send(ask())))
        .ok()?;
    told.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> CallRecord {
        CallRecord {
            number,
            operation: "gather".to_owned(),
            site: "src/main.rs:7:9".to_owned(),
        }
    }

    fn trace(rank: usize, last: Option<u64>, failed: bool) -> RankTrace {
        RankTrace {
            rank,
            calls: last.map(call).into_iter().collect(),
            failed,
        }
    }

    #[test]
    fn ranks_that_did_not_come_to_the_call_are_missing() {
        let others = [
            trace(1, Some(3), true),
            trace(2, Some(2), false),
            trace(3, None, false),
        ];
        assert_eq!(missing(&others, 3), [2, 3]);
        let report = IncompleteReport {
            call: call(3),
            rank: 0,
            world: 4,
            missing: missing(&others, 3),
            others: others.to_vec(),
            apart: None,
            debug: false,
        };
        let text = report.to_string();
        for part in [
            "`gather` did not complete on rank 0 of 4 (call 3, at src/main.rs:7:9): ranks [2, 3] did not come",
            "set `ACCELERATE_DEBUG_MODE=true`",
            "\n  - Process 1: failed in call 3, `gather` at src/main.rs:7:9",
            "\n  - Process 2: was last in call 2",
        ] {
            assert!(text.contains(part), "`{part}` not in {text}");
        }
    }

    #[test]
    fn a_store_that_does_not_answer_is_not_awaited_for_long() {
        let (hold, held) = mpsc::channel::<()>();
        let answer = within(Duration::from_millis(20), move || held.recv());
        assert!(answer.is_none());
        drop(hold);
        assert_eq!(within(LIMIT, || 7), Some(7));
    }
}
