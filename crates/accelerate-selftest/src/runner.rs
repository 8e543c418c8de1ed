//! The order of things, and how ranks agree on a result.
//!
//! When a stage is over, every rank posts what it found; rank 0 reads it all and posts the verdict.
//! That goes over the board and not over the group of ranks: a failed collective may have left the
//! group unusable, and the verdict has to arrive all the same.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use accelerate::Accelerator;
use accelerate_plan::env::Environment;
use accelerate_plan::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::board::Board;
use crate::failure::{FAILED, Failure};
use crate::probe::{Finding, Probe};
use crate::report::{self, Outcome, Report};
use crate::stage::{Stage, Step};
use crate::stages::STAGES;
use crate::watch::{Ended, Watch};

/// The clock of a stage rings before an operation between ranks gives up by itself.
const OPERATION_MARGIN: Duration = Duration::from_secs(5);
/// Ranks that do not join are told by the library, which knows which; then rings the clock.
const START_MARGIN: Duration = Duration::from_secs(15);
/// How long ranks wait for others that are done too.
const FAREWELL: Duration = Duration::from_secs(5);
/// A rank that failed ends this much before the others, so that the launcher names it.
const HEAD_START: Duration = Duration::from_millis(500);

/// What happens before the stages.
const START: &str = "start";
const JOIN: &str = "join the ranks";

/// What rank 0 makes of the ends of a stage.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Verdict {
    /// The ranks on which something was wrong.
    culprits: Vec<usize>,
    is_lost: bool,
}

/// Runs all stages, or those that `arguments` name.
///
/// # Errors
/// If the ranks do not come together, or lose each other.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stages = selected(arguments)?;
    let topology = Topology::read(&Environment::from_process())?.unwrap_or_else(Topology::alone);
    let (rank, world) = (topology.rank(), topology.world_size());
    let report = Arc::new(Mutex::new(Report::new(rank, world, arguments.json)));
    let mut watch = Watch::start(rank, world, Arc::clone(&report))?;

    let start = Instant::now();
    let limit = arguments.stage_timeout;
    watch.enter_stage(0, START, 1, limit + START_MARGIN);
    watch.enter_step(0, JOIN);
    let (accelerator, board) = join(limit).inspect_err(|failure| {
        let finding = Finding {
            rank,
            step: JOIN.to_owned(),
            what: "the meeting".to_owned(),
            expected: report::processes(world),
            found: failure.describe(),
        };
        lock(&report).broken_off(START, start.elapsed(), &[finding]);
    })?;
    watch.give_signs(&board)?;
    lock(&report).begin(&headline(&accelerator));

    let job = Job {
        arguments,
        accelerator,
        board,
        watch,
        report,
    };
    job.go_through(&stages)
}

/// Brings the ranks together.
fn join(limit: Duration) -> Result<(Accelerator, Board), Failure> {
    let accelerator = Accelerator::builder()
        .timeout(limit + OPERATION_MARGIN)
        .build()?;
    Ok((accelerator, Board::of_job()?))
}

/// Everything a rank has in hand while it goes through the stages.
#[derive(Debug)]
struct Job<'a> {
    arguments: &'a Arguments,
    accelerator: Accelerator,
    board: Board,
    watch: Watch,
    report: Arc<Mutex<Report>>,
}

impl Job<'_> {
    fn go_through(self, stages: &[Stage]) -> Result<ExitCode, Failure> {
        let mut culprits = Vec::new();
        for (number, stage) in (1..).zip(stages) {
            let verdict = self.stage(number, stage)?;
            culprits.extend(verdict.culprits);
            if verdict.is_lost {
                break;
            }
        }
        lock(&self.report).summary();
        self.watch.stop();
        part(&self.accelerator, &self.board, &culprits)?;
        Ok(match lock(&self.report).has_failures() {
            true => ExitCode::from(FAILED),
            false => ExitCode::SUCCESS,
        })
    }

    /// Runs one stage on this rank, and agrees with the others.
    fn stage(&self, number: usize, stage: &Stage) -> Result<Verdict, Failure> {
        let start = Instant::now();
        let steps = match stage.steps(self.accelerator.num_processes()) {
            Ok(steps) => steps,
            Err(reason) => {
                let reason = reason.to_owned();
                let outcome = Outcome::Unavailable { reason };
                lock(&self.report).stage(stage.name, &outcome, start.elapsed(), &[]);
                return Ok(Verdict::default());
            }
        };
        let limit = self.arguments.stage_timeout;
        self.watch
            .enter_stage(number, stage.name, steps.len(), limit);
        let mut probe = Probe::new(&self.accelerator, &self.board);
        let walked = self.walk(stage, steps, &mut probe);
        let error = walked.err().map(|failure| failure.describe());
        self.watch.leave_steps(error.clone());
        if let Some(error) = error {
            report::complain(&format!(
                "rank {} of {}: stage `{}` failed at `{}`: {error}",
                probe.rank(),
                probe.world(),
                stage.name,
                probe.step()
            ));
            probe.equal("the operation", "no error".to_owned(), error);
        }
        let verdict = self.agree(number, stage, probe.finish(), start)?;
        self.watch.leave_stage();
        Ok(verdict)
    }

    fn walk(&self, stage: &Stage, steps: &[Step], probe: &mut Probe<'_>) -> Result<(), Failure> {
        for (number, step) in steps.iter().enumerate() {
            self.watch.enter_step(number, step.name);
            self.watch.announce(&self.board)?;
            probe.begin(step.name);
            if let Some(breakage) = &self.arguments.break_stage {
                breakage.strike(stage.name, step.name, number == 0, probe)?;
            }
            (step.run)(probe)?;
        }
        Ok(())
    }

    /// Posts how this rank ended, and takes part in the verdict.
    fn agree(
        &self,
        number: usize,
        stage: &Stage,
        ended: Ended,
        start: Instant,
    ) -> Result<Verdict, Failure> {
        let (rank, world) = (
            self.accelerator.process_index(),
            self.accelerator.num_processes(),
        );
        // The clock rings earlier.
        let patience = self.arguments.stage_timeout + START_MARGIN;
        let key = format!("verdict/{number}");
        if rank > 0 {
            self.board.post(&Ended::key(number, rank), &ended)?;
            let verdict: Verdict = self.board.read(&key, 0, patience)?;
            let outcome = match verdict.culprits.is_empty() {
                true => Outcome::Passed { checks: 0 },
                false => Outcome::Failed {
                    findings: Vec::new(),
                },
            };
            lock(&self.report).stage(stage.name, &outcome, start.elapsed(), &[]);
            return Ok(verdict);
        }
        let mut all = vec![ended];
        for other in 1..world {
            all.push(
                self.board
                    .read(&Ended::key(number, other), other, patience)?,
            );
        }
        let verdict = Verdict {
            culprits: culprits(&all),
            is_lost: all.iter().any(|ended| ended.is_lost),
        };
        self.board.post(&key, &verdict)?;
        let notes: Vec<String> = all.iter().flat_map(|ended| ended.notes.clone()).collect();
        lock(&self.report).stage(stage.name, &outcome(all), start.elapsed(), &notes);
        Ok(verdict)
    }
}

/// Ranks on which something was wrong end first, so that the launcher names one of them, and rank 0,
/// which may serve the board, not before the others are done with it.
fn part(accelerator: &Accelerator, board: &Board, culprits: &[usize]) -> Result<(), Failure> {
    let (rank, world) = (accelerator.process_index(), accelerator.num_processes());
    let key = |rank: usize| format!("gone/{rank}");
    let others = if rank == 0 {
        (1..world).collect()
    } else if culprits.contains(&rank) {
        Vec::new()
    } else {
        culprits
            .iter()
            .copied()
            .filter(|&other| other > 0)
            .collect()
    };
    for other in others {
        // Who is stuck leaves no note.
        let _ = board.read::<bool>(&key(other), other, FAREWELL);
    }
    if rank > 0 {
        board.post(&key(rank), &true)?;
    }
    if culprits.contains(&rank) {
        // All is said and done; tearing libtorch down would take away the head start.
        signal_hook::low_level::exit(i32::from(FAILED));
    }
    if !culprits.is_empty() {
        thread::sleep(HEAD_START);
    }
    Ok(())
}

/// The stages that were asked for, in their own order.
fn selected(arguments: &Arguments) -> Result<Vec<Stage>, Failure> {
    let Some(wanted) = &arguments.stages else {
        return Ok(STAGES.to_vec());
    };
    let known = || STAGES.iter().map(|stage| stage.name);
    if let Some(name) = wanted
        .iter()
        .find(|name| !known().any(|known| known == **name))
    {
        return Err(Failure::NoSuchStage {
            name: name.clone(),
            known: known().collect(),
        });
    }
    let is_wanted = |stage: &&Stage| wanted.iter().any(|name| name == stage.name);
    Ok(STAGES.iter().filter(is_wanted).copied().collect())
}

fn headline(accelerator: &Accelerator) -> String {
    let state = accelerator.state();
    let backend = state.backend().map_or_else(
        || "no communication".to_owned(),
        |backend| backend.to_string(),
    );
    format!(
        "accelerate-selftest {}: {}, {}, {backend}",
        env!("CARGO_PKG_VERSION"),
        report::processes(state.num_processes()),
        state.distributed_type(),
    )
}

fn culprits(all: &[Ended]) -> Vec<usize> {
    let is_wrong = |ended: &Ended| ended.is_lost || !ended.findings.is_empty();
    (0..all.len())
        .filter(|&rank| is_wrong(&all[rank]))
        .collect()
}

fn outcome(all: Vec<Ended>) -> Outcome {
    if culprits(&all).is_empty() {
        let checks = all.iter().map(|ended| ended.checks).sum();
        return Outcome::Passed { checks };
    }
    let findings: Vec<Finding> = all.into_iter().flat_map(|ended| ended.findings).collect();
    Outcome::Failed { findings }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
