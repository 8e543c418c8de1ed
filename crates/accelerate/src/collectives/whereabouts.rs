//! Where other ranks are, after a collective failed or while it is waited for.
//!
//! Processes that live are asked, and tell their last calls. Of those that have ended there
//! are notes in the store that all share: in debug mode every rank notes each call that it
//! comes to, otherwise only one that failed.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{self as torch, ExceptionKind, ProcessGroup, Store};

use super::call::{Call, CallRecord, read_note};
use super::incomplete::{IncompleteReport, RankTrace};
use crate::Error;
use crate::state::{Attendance, PartialState};

/// How long all questions may take; who serves the store may be gone or stopped.
const LIMIT: Duration = Duration::from_secs(5);
/// For how long somebody who is gone is looked for after a connection broke.
const SEARCH: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a note that is there may take to be read.
const ANSWER: Duration = Duration::from_secs(1);

const LAST: &str = "last";
const FAILED: &str = "failed";

/// Explains a failure of a collective, if it may be that of another rank.
///
/// Of a call that was not counted, one on the process group itself, the error is given back
/// as it is where nobody is gone.
pub(crate) fn explain(state: &PartialState, call: Option<Call>, error: torch::Error) -> Error {
    let (Some(group), Some((operation, search))) = (state.process_group(), between_ranks(&error))
    else {
        return error.into();
    };
    let others = others(state, group, Some(search));
    let report = report(state, call, operation, others);
    // Where all came, a failure that is none of waiting says most by itself.
    let waited = !matches!(error, torch::Error::Libtorch { .. });
    if report.missing.is_empty() && !(waited && call.is_some()) {
        return error.into();
    }
    Error::CollectiveIncomplete {
        report: Box::new(report),
        source: Box::new(error),
    }
}

/// Who is missing in a call that others are awaited for.
pub(super) fn while_waiting(
    state: &PartialState,
    group: &ProcessGroup,
    call: Call,
) -> IncompleteReport {
    report(
        state,
        Some(call),
        call.operation,
        others(state, group, None),
    )
}

/// Whether a failure may be that of another rank: in what, and how long to look for it.
fn between_ranks(error: &torch::Error) -> Option<(&'static str, Duration)> {
    match error {
        torch::Error::ConnectionLost { operation, .. } => Some((operation, SEARCH)),
        torch::Error::Timeout { operation, .. } => Some((operation, Duration::ZERO)),
        torch::Error::Libtorch {
            operation,
            kind: ExceptionKind::Network | ExceptionKind::Backend | ExceptionKind::Standard,
            ..
        } => Some((operation, Duration::ZERO)),
        _ => None,
    }
}

/// Notes the last calls of this rank for the others.
pub(super) fn post_last(group: &ProcessGroup, note: &[u8]) {
    post(group, LAST, note);
}

/// Notes are worth no failure of their own.
fn post(group: &ProcessGroup, what: &str, note: &[u8]) {
    if let Err(error) = group.store().set(&key(what, group.rank()), note) {
        tracing::debug!(%error, "the other ranks cannot be told where this one is");
    }
}

fn key(what: &str, rank: usize) -> String {
    format!("accelerate/calls/{what}/{rank}")
}

/// What is known of all others. After a failure they are told of it, and somebody who is
/// gone is looked for as long as `search` says.
fn others(state: &PartialState, group: &ProcessGroup, search: Option<Duration>) -> Vec<RankTrace> {
    let (asking, shared) = (state.clone(), group.clone());
    let found = within(LIMIT, move || {
        if search.is_some() {
            post(&shared, FAILED, &asking.calls().note());
        }
        let until = Instant::now() + search.unwrap_or_default();
        loop {
            let traces = traces(&asking, &shared)?;
            if traces.iter().any(RankTrace::is_gone) || Instant::now() >= until {
                return Ok(traces);
            }
            thread::sleep(PAUSE);
        }
    });
    // Without the store nothing is known but that its server is gone.
    let server = |attendance| {
        let server = state.store_rank().into_iter();
        server.map(|rank| trace(rank, attendance)).collect()
    };
    match found {
        Some(Ok(traces)) => traces,
        Some(Err::<_, torch::Error>(_)) => server(Attendance::Ended),
        None => server(Attendance::Silent),
    }
}

fn trace(rank: usize, attendance: Attendance) -> RankTrace {
    RankTrace {
        rank,
        attendance,
        calls: Vec::new(),
        failed: false,
    }
}

fn traces(state: &PartialState, group: &ProcessGroup) -> Result<Vec<RankTrace>, torch::Error> {
    let answers = state.ask_others(group)?;
    answers
        .into_iter()
        .map(|answer| {
            // Notes are read after the process was asked: what it said before its end is there.
            let failed = read(group.store(), FAILED, answer.rank)?;
            let mut calls = read_note(&answer.news);
            if calls.is_empty() {
                calls = read(group.store(), LAST, answer.rank)?;
            }
            let number = |calls: &[CallRecord]| calls.last().map_or(0, |call| call.number);
            let is_failed = !failed.is_empty() && number(&failed) >= number(&calls);
            Ok(RankTrace {
                calls: if is_failed { failed } else { calls },
                failed: is_failed,
                ..trace(answer.rank, answer.attendance)
            })
        })
        .collect()
}

fn read(store: &Store, what: &str, rank: usize) -> Result<Vec<CallRecord>, torch::Error> {
    let key = key(what, rank);
    Ok(match store.contains(&key)? {
        true => read_note(&store.get(&key, ANSWER)?),
        false => Vec::new(),
    })
}

fn report(
    state: &PartialState,
    call: Option<Call>,
    operation: &str,
    others: Vec<RankTrace>,
) -> IncompleteReport {
    IncompleteReport {
        operation: call.map_or(operation, |call| call.operation).to_owned(),
        missing: IncompleteReport::missing(&others, call.map(|call| call.number)),
        call: call.map(|call| call.record(true)),
        rank: state.process_index(),
        world: state.num_processes(),
        others,
        apart: state.calls().apart(),
        debug: state.debug(),
    }
}

/// The answer of `ask`, unless it takes too long.
pub(crate) fn within<R: Send + 'static>(
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

    #[test]
    fn a_store_that_does_not_answer_is_not_awaited_for_long() {
        let (hold, held) = mpsc::channel::<()>();
        let answer = within(Duration::from_millis(20), move || held.recv());
        assert!(answer.is_none());
        drop(hold);
        assert_eq!(within(LIMIT, || 7), Some(7));
    }
}
