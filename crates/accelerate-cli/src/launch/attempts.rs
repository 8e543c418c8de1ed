//! Attempts: a job is started again after a failure, as often as it may be.

use std::process::ExitCode;

use accelerate_plan::launch::{LaunchPlan, Program};

use super::{
    ended::{Ended, FirstFailure, Outcome},
    events::{Outside, Stop, StopRequest},
    handling::Handling,
    job_report,
    job_view::JobView,
    port::Reservation,
    start::Attempt,
    supervisor::Supervisor,
    verdict,
    watch::watch,
};
use crate::{error::Result, report};

/// Where the plans of the attempts come from, and who else has a part in them.
///
/// A job on one machine has [`OneMachine`]. Machines that form a job together meet in `next`, and
/// tell each other in `failed` and `finish` how it goes.
pub(crate) trait Rounds {
    /// The plan of the next attempt; may wait for other machines, as long as `call` allows.
    ///
    /// # Errors
    /// If there can be no attempt. Whatever is returned once `call` asks to stop counts as that.
    fn next(&mut self, call: &Call) -> Result<LaunchPlan>;

    /// A rank of this machine was the first to fail; called at once, while the other ranks are
    /// still ending.
    fn failed(&mut self, failure: FirstFailure) {
        let _ = failure;
    }

    /// Whether another attempt makes sense to the other machines, after one that failed.
    fn may_go_on(&self) -> bool {
        true
    }

    /// All ranks of this machine have ended; may wait for other machines. Returns what happened on
    /// another one if it failed.
    ///
    /// # Errors
    /// If the others cannot be reached any more.
    fn finish(&mut self, call: &Call, ended: &Ended) -> Result<Option<String>> {
        let _ = (call, ended);
        Ok(None)
    }
}

/// What [`Rounds`] are told about an attempt.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Its number, from 0.
    pub(crate) attempt: usize,
    /// Whether waiting is to end.
    pub(crate) stop: StopRequest,
    /// Ends the attempt on this machine when another one fails.
    pub(crate) outside: Outside,
}

/// The attempts of a job on one machine.
#[derive(Debug)]
pub(crate) struct OneMachine {
    plan: LaunchPlan,
    /// Keeps the port of the plan away from other jobs.
    reservation: Option<Reservation>,
    /// Whether the user named the port, so that each attempt has the same one.
    port_is_given: bool,
}

impl OneMachine {
    /// Attempts that follow `plan`, whose port is held by `reservation`. Unless the port
    /// was given by the user, each attempt has another one: what is left of the last attempt cannot
    /// disturb the next.
    pub(crate) fn new(
        plan: LaunchPlan,
        reservation: Option<Reservation>,
        port_is_given: bool,
    ) -> Self {
        Self {
            plan,
            reservation,
            port_is_given,
        }
    }
}

impl Rounds for OneMachine {
    fn next(&mut self, call: &Call) -> Result<LaunchPlan> {
        if call.attempt > 0 && self.reservation.is_some() && !self.port_is_given {
            let fresh = Reservation::new(0)?;
            self.plan.rendezvous.port = fresh.port();
            self.reservation = Some(fresh);
        }
        Ok(self.plan.clone())
    }
}

/// Runs a job until it has succeeded or may not be started again; tells how it ended.
///
/// # Errors
/// If a file that was asked for cannot be written, or an attempt cannot be started.
pub(crate) fn run(
    program: &Program,
    rounds: &mut dyn Rounds,
    handling: &Handling,
) -> Result<ExitCode> {
    if let Some(path) = &handling.report {
        job_report::check(path)?;
    }
    let supervisor = Supervisor::new(handling)?;
    let view = JobView::start(handling, &supervisor.console);
    if let (true, Some(placement)) = (handling.debug, &handling.placement) {
        report::note("where the ranks run:", &placement.lines());
    }
    let history = Loop {
        program,
        handling,
        rounds,
        stop: supervisor.stop.clone(),
    }
    .run(
        |attempt| supervisor.outside(attempt),
        |plan, number, failed| {
            watch(
                &supervisor,
                Attempt::start(&supervisor, plan, number)?,
                failed,
            )
        },
    )?;
    // Gives the terminal back, and what was to stand on it.
    drop(view);
    if let Some(last) = history.last().filter(|_| !handling.quiet) {
        verdict::tell(last, program, handling.debug);
    }
    let code = history.last().map_or(0, Ended::exit_code);
    if let Some(path) = &handling.report {
        job_report::write(path, program, &history)?;
    }
    Ok(ExitCode::from(code))
}

struct Loop<'a> {
    program: &'a Program,
    handling: &'a Handling,
    rounds: &'a mut dyn Rounds,
    stop: StopRequest,
}

impl Loop<'_> {
    /// All attempts, in order; `attempt` makes one.
    fn run(
        self,
        outside: impl Fn(usize) -> Outside,
        mut attempt: impl FnMut(&LaunchPlan, usize, &mut dyn FnMut(FirstFailure)) -> Result<Ended>,
    ) -> Result<Vec<Ended>> {
        let mut history = Vec::new();
        for number in 0.. {
            let call = Call {
                attempt: number,
                stop: self.stop.clone(),
                outside: outside(number),
            };
            let plan = match (self.rounds.next(&call), self.stopped()) {
                (Ok(plan), _) => plan,
                (Err(_), Some(outcome)) => {
                    history.push(Ended::before_start(number, outcome));
                    break;
                }
                (Err(error), None) => return Err(error),
            };
            let mut ended = attempt(&plan, number, &mut |failure| self.rounds.failed(failure))?;
            let elsewhere = self.rounds.finish(&call, &ended)?;
            let went_well = matches!(ended.outcome, Outcome::Success | Outcome::Left);
            if let (Some(description), true) = (elsewhere, went_well) {
                ended.outcome = Outcome::PeerFailed { description };
            }
            let again = self.may_start_again(&ended);
            if again && !self.handling.quiet {
                let of = self.handling.max_restarts;
                verdict::tell_restart(&ended, self.program, number + 1, of);
            }
            history.push(ended);
            if !again {
                break;
            }
        }
        Ok(history)
    }

    /// Why the job is to end, if it is.
    fn stopped(&self) -> Option<Outcome> {
        Some(match self.stop.reason()? {
            Stop::Signal(signal) => Outcome::Interrupted { signal },
            Stop::TimeLimit => Outcome::TimedOut {
                limit: self.handling.time_limit.unwrap_or_default(),
            },
        })
    }

    /// Only a failure is worth another attempt, and only while nobody wants the job to end. What
    /// cannot be killed still has the devices.
    fn may_start_again(&self, ended: &Ended) -> bool {
        let failed = matches!(
            ended.outcome,
            Outcome::Failed { .. } | Outcome::PeerFailed { .. }
        );
        failed
            && ended.attempt < self.handling.max_restarts
            && ended.survivors == 0
            && self.stop.reason().is_none()
            && self.rounds.may_go_on()
    }
}

#[cfg(test)]
mod tests;
