//! Waits for the end of an attempt and brings it about when a rank fails, a signal arrives, another
//! machine fails or the time is up.

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime},
};

use accelerate_plan::LEFT_EARLY;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGINT, SIGKILL, SIGQUIT};

use super::{
    activity::{self, Activity},
    ended::{Ended, FirstFailure, Outcome},
    events::Event,
    keeper::KILL_INTERVAL,
    keeper_news::News,
    signals::{self, Notice},
    start::{Attempt, End},
    supervisor::Supervisor,
    tree::{self, Exit, Reaped},
};
use crate::{
    error::{Error, Result},
    report,
};

/// How long the last output may take once all processes are gone.
const DRAIN: Duration = Duration::from_secs(2);

/// How long killing may take before what is left is given up.
const GIVE_UP: Duration = Duration::from_secs(10);

/// How long an end may take before the person who waits is told why.
const PATIENCE: Duration = Duration::from_secs(1);

/// Two interrupts from the keyboard within this time end a program that handles the first one.
const SECOND_INTERRUPT: Duration = Duration::from_secs(5);

/// Waits until every process of the attempt is gone. Calls `failed` at the first failure on this
/// machine, once the other ranks are asked to end and before they have.
pub(crate) fn watch(
    supervisor: &Supervisor<'_>,
    attempt: Attempt,
    failed: &mut dyn FnMut(FirstFailure),
) -> Result<Ended> {
    let mut watch = Watch {
        keepers: attempt.ranks.iter().map(|rank| rank.keeper).collect(),
        cause: None,
        left: None,
        keyboard: None,
        phase: Phase::Running,
        told: false,
        activities: Vec::new(),
        supervisor,
        attempt,
        failed,
    };
    watch.until_gone()?;
    watch.drain();
    Ok(watch.into_ended())
}

struct Watch<'a> {
    supervisor: &'a Supervisor<'a>,
    attempt: Attempt,
    failed: &'a mut dyn FnMut(FirstFailure),
    /// Keepers that have not ended.
    keepers: HashSet<Pid>,
    /// Why the attempt ends, unless everything succeeds. The first cause stays.
    cause: Option<Outcome>,
    /// When the first rank saved and left because somebody asked the program to end.
    left: Option<Instant>,
    /// The last signal that a key sent to the program and to us.
    keyboard: Option<(i32, Instant)>,
    phase: Phase,
    told: bool,
    /// What the ranks were doing when the time was up.
    activities: Vec<Activity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// SIGABRT was sent.
    Aborted {
        since: Instant,
    },
    /// SIGTERM was sent.
    Asked {
        since: Instant,
    },
    /// SIGKILL was sent.
    Killing {
        since: Instant,
    },
    GivenUp,
}

impl Watch<'_> {
    fn until_gone(&mut self) -> Result<()> {
        while self.phase != Phase::GivenUp && !self.reap()? {
            let event = match self.next_deadline() {
                None => self.supervisor.events.recv().ok(),
                Some(at) => self.receive_until(at),
            };
            match event {
                Some(Event::Signal(Notice::Stop {
                    signal,
                    from_terminal,
                })) => {
                    self.stop(signal, from_terminal);
                }
                Some(event) => self.take_note(event),
                None => self.deadline_passed(),
            }
        }
        Ok(())
    }

    fn receive_until(&self, at: Instant) -> Option<Event> {
        let left = at.saturating_duration_since(Instant::now());
        self.supervisor.events.recv_timeout(left).ok()
    }

    /// Everything but a request to stop.
    fn take_note(&mut self, event: Event) {
        match event {
            Event::Signal(Notice::Show) => {
                let activities = activity::of_ranks(&self.attempt);
                let lines = activity::lines(&self.attempt, &activities);
                report::note("what each rank is doing:", &lines);
            }
            Event::Signal(Notice::ChildEnded | Notice::Stop { .. }) => {}
            Event::Keeper(news) => self.keeper_told(news),
            Event::StreamClosed { attempt } => self.stream_closed(attempt),
            Event::PeerFailed {
                attempt,
                description,
            } => {
                if attempt == self.attempt.number {
                    self.cause
                        .get_or_insert(Outcome::PeerFailed { description });
                    self.ask();
                }
            }
        }
    }

    fn keeper_told(&mut self, news: News) {
        match news {
            News::Started { keeper, program } => {
                let mut ranks = self.attempt.ranks.iter_mut();
                if let Some(rank) = ranks.find(|rank| rank.keeper == keeper) {
                    rank.program = Some(program);
                }
            }
            News::Ended { keeper, exit } => self.rank_ended(keeper, exit),
            News::Flushed { attempt } => self.stream_closed(attempt),
        }
    }

    fn stream_closed(&mut self, attempt: usize) {
        if attempt == self.attempt.number {
            self.attempt.open_streams = self.attempt.open_streams.saturating_sub(1);
        }
    }

    /// Takes notice of processes that have ended; tells whether none is left.
    fn reap(&mut self) -> Result<bool> {
        loop {
            let reaped = tree::reap().map_err(|source| Error::System {
                doing: "wait for processes",
                source,
            })?;
            match reaped {
                Reaped::Child(pid, exit) => {
                    if self.keepers.remove(&pid) {
                        self.rank_ended(pid, exit);
                    }
                }
                Reaped::AllAlive => {
                    if self.all_ranks_ended() {
                        // What the programs left behind goes after the last rank.
                        self.ask();
                    }
                    return Ok(false);
                }
                Reaped::NoneLeft => return Ok(true),
            }
        }
    }

    /// The program of a rank has ended. The first word about it counts.
    fn rank_ended(&mut self, keeper: Pid, exit: Exit) {
        let by_launcher = self.phase != Phase::Running;
        let ranks = self.attempt.ranks.iter_mut();
        let rank = ranks.enumerate().find(|(_, rank)| rank.keeper == keeper);
        let Some((index, rank)) = rank.filter(|(_, rank)| rank.end.is_none()) else {
            return;
        };
        rank.end = Some(End {
            exit,
            at: SystemTime::now(),
            by_launcher,
        });
        if exit == Exit::Code(0) {
            return;
        }
        if exit == Exit::Code(LEFT_EARLY) {
            // The others leave at the same step, by themselves.
            self.left.get_or_insert_with(Instant::now);
            return;
        }
        let failure = FirstFailure {
            rank: rank.rank,
            exit,
        };
        self.ask();
        if self.cause.is_none() {
            self.cause = Some(Outcome::Failed { index, exit });
            (self.failed)(failure);
        }
    }

    fn stop(&mut self, signal: i32, from_terminal: bool) {
        if self.attempt.shares_terminal && from_terminal && matches!(signal, SIGINT | SIGQUIT) {
            // The program has this signal too, and may want to go on: a debugger does.
            let now = Instant::now();
            let before = self.keyboard.replace((signal, now));
            if before.is_none_or(|(_, at)| now.duration_since(at) > SECOND_INTERRUPT) {
                return;
            }
        }
        self.cause.get_or_insert(Outcome::Interrupted { signal });
        match self.phase {
            Phase::Running => self.ask(),
            _ => self.kill(),
        }
    }

    /// Asks all processes to end, once.
    fn ask(&mut self) {
        self.phase = match self.phase {
            Phase::Running => Phase::Asked {
                since: Instant::now(),
            },
            // What SIGABRT did not end gets no more time than it had.
            Phase::Aborted { since } if self.all_ranks_ended() => Phase::Asked { since },
            _ => return,
        };
        // A keeper passes the order on to everything below it.
        tree::signal_all(self.keepers.iter().copied(), Signal::TERM);
        tree::signal_all(tree::beside(&self.keepers), Signal::TERM);
    }

    fn all_ranks_ended(&self) -> bool {
        self.attempt.ranks.iter().all(|rank| rank.end.is_some())
    }

    /// The job has taken too long. SIGABRT lets many programs say where they are.
    fn time_is_up(&mut self, limit: Duration) {
        self.cause.get_or_insert(Outcome::TimedOut { limit });
        self.activities = activity::of_ranks(&self.attempt);
        if !self.supervisor.handling.quiet {
            let seconds = limit.as_secs_f64();
            report::note(
                &format!("the time limit of {seconds} s has passed; what each rank is doing:"),
                &activity::lines(&self.attempt, &self.activities),
            );
        }
        self.phase = Phase::Aborted {
            since: Instant::now(),
        };
        tree::signal_all(tree::below_us(&self.keepers), Signal::ABORT);
    }

    fn kill(&mut self) {
        if !matches!(self.phase, Phase::Killing { .. }) {
            self.phase = Phase::Killing {
                since: Instant::now(),
            };
        }
        // Keepers stay to report how their programs ended. Those that only stay with what is left
        // behind end when that does.
        tree::signal_all(tree::below_us(&self.keepers), Signal::KILL);
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => {
                let left = self.left.map(|left| left + self.supervisor.handling.grace);
                let deadlines = [self.supervisor.stop.deadline(), left];
                deadlines.into_iter().flatten().min()
            }
            Phase::GivenUp => None,
            Phase::Aborted { since } | Phase::Asked { since } => {
                let kill_at = since + self.supervisor.handling.grace;
                Some(if self.told {
                    kill_at
                } else {
                    kill_at.min(since + PATIENCE)
                })
            }
            Phase::Killing { .. } => Some(Instant::now() + KILL_INTERVAL),
        }
    }

    fn deadline_passed(&mut self) {
        let handling = self.supervisor.handling;
        match self.phase {
            // A rank left, and others did not follow.
            Phase::Running
                if self
                    .left
                    .is_some_and(|left| left.elapsed() >= handling.grace) =>
            {
                self.ask();
            }
            Phase::Running => {
                if let Some(limit) = handling.time_limit {
                    self.time_is_up(limit);
                }
            }
            Phase::GivenUp => {}
            Phase::Aborted { since } | Phase::Asked { since }
                if since.elapsed() < handling.grace =>
            {
                self.tell_why(since);
            }
            Phase::Aborted { .. } | Phase::Asked { .. } => self.kill(),
            Phase::Killing { since } if since.elapsed() < GIVE_UP => self.kill(),
            Phase::Killing { .. } => {
                tree::signal_all(self.keepers.iter().copied(), Signal::KILL);
                self.phase = Phase::GivenUp;
            }
        }
    }

    /// Says once why nothing seems to happen.
    fn tell_why(&mut self, since: Instant) {
        self.told = true;
        if self.supervisor.handling.quiet {
            return;
        }
        let reason = match &self.cause {
            Some(Outcome::Failed { index, .. }) => {
                format!("rank {} failed", self.attempt.ranks[*index].rank)
            }
            Some(Outcome::PeerFailed { .. }) => "another machine failed".to_owned(),
            Some(Outcome::Interrupted { signal }) => format!("{} arrived", signals::name(*signal)),
            Some(Outcome::TimedOut { .. }) => "the time is up".to_owned(),
            None if self.left.is_some() && !self.all_ranks_ended() => {
                "a rank has saved and left".to_owned()
            }
            Some(Outcome::Success | Outcome::Left) | None => "all ranks have ended".to_owned(),
        };
        let waiting = tree::below_us(&self.keepers).len();
        let grace = self.supervisor.handling.grace;
        let left = grace.saturating_sub(since.elapsed()).as_secs_f64().round();
        report::say(&format!(
            "note: {reason}; waiting up to {left} s for processes to end: {waiting} (Ctrl-C ends \
             them now)\n"
        ));
    }

    /// Lets the last output and the last word of the keepers through.
    fn drain(&mut self) {
        let until = Instant::now() + DRAIN;
        if self.supervisor.keepers.flush(self.attempt.number).is_ok() {
            self.attempt.open_streams += 1;
        }
        while self.attempt.open_streams > 0 && Instant::now() < until {
            // A request to stop is remembered by the supervisor, and nothing runs any more.
            if let Some(event) = self.receive_until(until) {
                self.take_note(event);
            }
        }
    }

    fn into_ended(self) -> Ended {
        let survivors = match self.phase {
            Phase::GivenUp => tree::below_us(&self.keepers).len(),
            _ => 0,
        };
        let from_keyboard = self.keyboard.map(|(signal, _)| signal);
        let unfinished = self
            .attempt
            .ranks
            .iter()
            .position(|rank| rank.end.is_none());
        let outcome = match self.cause {
            // Others left, and this one could not be killed.
            None => unfinished.map_or(Outcome::Success, |index| Outcome::Failed {
                index,
                exit: Exit::Signal(SIGKILL),
            }),
            Some(Outcome::Failed {
                exit: Exit::Signal(signal),
                ..
            }) if from_keyboard == Some(signal) => Outcome::Interrupted { signal },
            Some(cause) => cause,
        };
        Ended::new(&self.attempt, outcome, self.activities, survivors)
    }
}
