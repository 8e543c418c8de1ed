//! What ranks are told when they do not agree, or do not come.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::HashMap;
use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use super::logged::Logged;
use accelerate::collectives::{
    IncompleteReport, MismatchReport, Reduction, broadcast, broadcast_object_list, gather,
    gather_object, pad_across_processes, reduce,
};
use accelerate::state::StateOptions;
use accelerate::{Error, PartialState, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Device, Kind, Tensor};

const LONG: Duration = Duration::from_secs(60);
/// Short, but long enough for ranks to come together on a busy machine.
const SHORT: Duration = Duration::from_secs(4);

fn state_of(rank: Rank, debug: bool, timeout: Duration) -> Result<PartialState> {
    let overlay = [("ACCELERATE_DEBUG_MODE", debug.to_string())];
    let pairs = rank.environment().into_iter().chain(overlay);
    let state = PartialState::from_environment(
        &accelerate_plan::env::Environment::from_pairs(pairs),
        &StateOptions {
            timeout: Some(timeout),
            ..StateOptions::default()
        },
    )?;
    // The store of rank 0 is there for the others until all are through.
    std::mem::forget(state.clone());
    Ok(state)
}

fn zeros(shape: &[i64]) -> Tensor {
    Tensor::zeros(shape, (Kind::Float, Device::Cpu))
}

fn mismatch<T: Debug>(result: Result<T>) -> Box<MismatchReport> {
    match result.unwrap_err() {
        Error::CollectiveMismatch { report } => report,
        other => panic!("another error: {other}"),
    }
}

fn incomplete<T: Debug>(result: Result<T>) -> Box<IncompleteReport> {
    match result.unwrap_err() {
        Error::CollectiveIncomplete { report, .. } => report,
        other => panic!("another error: {other}"),
    }
}

fn assert_all_in(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` not in {text}");
    }
}

#[test]
fn every_rank_sees_the_shapes_of_all() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let state = state_of(rank, true, LONG)?;
        let odd = rank.index() == 1;
        let own = zeros(if odd { &[2, 4] } else { &[2, 3] });
        let text = mismatch(gather(&state, own)).to_string();
        assert_all_in(
            &text,
            &[
                "cannot apply `gather`: the shapes or kinds",
                "\n\nOperation: `gather`\nInput shapes:\n  - Process 0: [2, 3] Float on cpu, at ",
                "\n  - Process 1: [2, 4] Float on cpu, at ",
                "distributed/debug_mode.rs:",
                "Last calls:\n  - Process 0: call 1, `gather` at ",
            ],
        );
        // Kinds, arguments, keys and structure count as well.
        let kind = if odd { Kind::Int64 } else { Kind::Float };
        let text = mismatch(gather(&state, zeros(&[2]).to_kind(kind))).to_string();
        assert_all_in(&text, &["Process 1: [2] Int64"]);
        let text = mismatch(broadcast(&state, zeros(&[2]), rank.index())).to_string();
        assert_all_in(&text, &["the arguments differ", "cpu, from_process 1, at"]);
        let reduction = if odd { Reduction::Max } else { Reduction::Sum };
        mismatch(reduce(&state, zeros(&[2]), reduction));
        let key = if odd { "mask" } else { "ids" };
        let text = mismatch(gather(&state, HashMap::from([(key, zeros(&[2]))]))).to_string();
        assert_all_in(&text, &["Process 0: [ids]: [2] Float", "[mask]: [2] Float"]);
        let optional = (zeros(&[1]), odd.then(|| zeros(&[1])));
        let text = mismatch(gather(&state, optional)).to_string();
        assert_all_in(&text, &["{[0]: [1] Float, [1]: [1] Float}"]);
        let dims = zeros(if odd { &[2, 1] } else { &[2] });
        let text = mismatch(pad_across_processes(&state, dims, 0, 0.0, false)).to_string();
        assert_all_in(&text, &["numbers of dimensions", "only sizes may differ"]);
        // Nothing was sent: what all do alike still works.
        assert_eq!(gather(&state, zeros(&[1]))?.size(), [rank.world() as i64]);
        Ok(())
    });
}

#[test]
fn every_rank_sees_who_does_something_else() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let state = state_of(rank, true, LONG)?;
        drop(gather(&state, zeros(&[1]))?);
        let report = if rank.index() == 0 {
            mismatch(gather(&state, zeros(&[1])))
        } else {
            mismatch(state.wait_for_everyone())
        };
        assert_eq!(report.sides.len(), rank.world());
        assert_eq!(report.sides[0].call.operation, "gather");
        assert_eq!(report.sides[1].call.operation, "wait_for_everyone");
        let text = report.to_string();
        assert_all_in(
            &text,
            &[
                "ranks came to different collectives",
                "under `is_main_process`",
                "Process 0: `gather` at ",
                "Process 1: `wait_for_everyone` at ",
                "call 1, `gather` at ",
                "; call 2, `wait_for_everyone` at ",
            ],
        );
        assert_eq!(
            text.contains("rank 0 alone to `gather`"),
            rank.world() == 3,
            "{text}"
        );
        Ok(())
    });
}

#[test]
fn a_gather_for_the_main_process_only_is_told_from_an_end_of_the_others() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let state = state_of(rank, true, LONG)?;
        state.wait_for_everyone()?;
        if rank.index() > 0 {
            // Not before all are through.
            thread::sleep(Duration::from_secs(1));
            return Ok(());
        }
        let report = incomplete(gather(&state, zeros(&[1])));
        assert_eq!(report.missing, (1..rank.world()).collect::<Vec<_>>());
        assert_all_in(
            &report.to_string(),
            &[
                "`gather` did not complete on rank 0",
                "(call 2, at ",
                "has ended",
                "; if this call stands where only some ranks come",
            ],
        );
        // Of two that end together, the second may still live when the first is missed.
        let named = (1..rank.world()).any(|other| {
            let line = format!("\n  - Process {other}: has ended, was last in call 1, ");
            report
                .to_string()
                .contains(&(line + "`wait_for_everyone` at "))
        });
        assert!(named, "{report}");
        Ok(())
    });
}

#[test]
fn a_rank_that_does_not_come_in_time_is_named_with_its_last_call() {
    ranks(&[3], |rank: Rank| late(rank, false));
}

#[test]
fn a_rank_that_does_not_come_in_time_is_named_in_debug_mode() {
    ranks(&[3], |rank: Rank| late(rank, true));
}

/// Rank 1 comes late to the second call.
fn late(rank: Rank, debug: bool) -> Result<()> {
    let state = state_of(rank, debug, SHORT)?;
    drop(gather(&state, zeros(&[1]))?);
    if rank.index() == 1 {
        thread::sleep(SHORT + Duration::from_secs(2));
        assert!(reduce(&state, zeros(&[1]), Reduction::Sum).is_err());
        return Ok(());
    }
    let report = incomplete(reduce(&state, zeros(&[1]), Reduction::Sum));
    assert_eq!(report.missing, [1]);
    assert_eq!(report.call.as_ref().map(|call| call.number), Some(2));
    let text = report.to_string();
    let other = 2 - rank.index();
    assert_all_in(
        &text,
        &[
            &format!("`reduce` did not complete on rank {} of 3", rank.index()),
            "(call 2, at ",
            "debug_mode.rs:",
            "rank 1 did not come",
            &format!("\n  - Process {other}: "),
            " call 2, `reduce` at ",
        ],
    );
    // A process that lives tells it whether or not there is debug mode.
    assert_all_in(
        &text,
        &["\n  - Process 1: was last in call 1, `gather` at "],
    );
    assert!(!text.contains("ACCELERATE_DEBUG_MODE"), "{text}");
    Ok(())
}

#[test]
fn a_long_wait_says_who_is_missing_before_it_fails() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let logged = Logged::default();
        let _guard = tracing::subscriber::set_default(logged.clone());
        let state = state_of(rank, true, SHORT)?;
        state.wait_for_everyone()?;
        // Longer than the patience, which is half of the timeout, and shorter than it.
        if rank.index() == 1 {
            thread::sleep(Duration::from_millis(2500));
        }
        drop(gather(&state, zeros(&[1]))?);
        let warnings = logged.warnings();
        if rank.index() == 1 {
            assert!(warnings.is_empty(), "{warnings:?}");
            return Ok(());
        }
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_all_in(
            &warnings[0],
            &[
                "missing=[1]",
                "`gather` did not complete on rank 0 of 2 (call 2, at ",
                "Process 1: was last in call 1, `wait_for_everyone` at ",
            ],
        );
        Ok(())
    });
}

#[test]
fn a_thousand_right_calls_stay_silent() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let logged = Logged::default();
        let _guard = tracing::subscriber::set_default(logged.clone());
        let state = state_of(rank, true, LONG)?;
        let own = rank.index() as i64;
        for step in 0..1000i64 {
            let size = 1 + step % 5;
            match step % 8 {
                0 => drop(gather(&state, (zeros(&[size, 2]), 7 + own, "text"))?),
                1 => drop(reduce(&state, vec![zeros(&[size])], Reduction::Mean)?),
                // As long as rank and step make it.
                2 => drop(gather_object(&state, vec![own; (step + own) as usize % 7])?),
                3 => {
                    let ragged = zeros(&[1 + (own + step) % 3, 2]);
                    drop(pad_across_processes(
                        &state,
                        ragged,
                        0,
                        0.0,
                        step % 16 == 3,
                    )?);
                }
                4 => drop(broadcast(
                    &state,
                    zeros(&[size]),
                    step as usize % rank.world(),
                )?),
                5 => {
                    let mut list = vec![own; own as usize];
                    broadcast_object_list(&state, &mut list, 1)?;
                    assert_eq!(list, [1]);
                }
                6 => state.wait_for_everyone()?,
                // From places that differ over ranks, which is right where all come.
                _ if own == 0 => drop(gather(&state, HashMap::from([("a", zeros(&[1]))]))?),
                _ => drop(gather(&state, HashMap::from([("a", zeros(&[1]))]))?),
            }
        }
        let turn = state.main_process_first()?;
        turn.end()?;
        let warnings = logged.warnings();
        assert!(warnings.is_empty(), "{warnings:?}");
        Ok(())
    });
}

#[test]
fn without_debug_mode_the_store_is_left_alone() {
    ranks(&[2], |rank: Rank| notes(rank, false));
}

#[test]
fn in_debug_mode_ranks_leave_notes() {
    ranks(&[2], |rank: Rank| notes(rank, true));
}

fn notes(rank: Rank, debug: bool) -> Result<()> {
    let state = state_of(rank, debug, LONG)?;
    drop(gather(&state, zeros(&[1]))?);
    state.wait_for_everyone()?;
    let store = state.process_group().unwrap().store();
    for key in ["last/0", "last/1", "failed/0", "failed/1"] {
        let there = store.contains(&format!("accelerate/calls/{key}"))?;
        assert_eq!(there, debug && key.starts_with("last"), "{key}");
    }
    state.wait_for_everyone()
}
