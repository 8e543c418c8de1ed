//! Waits for the end of a job and brings it about when a rank fails or a signal arrives.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::{
    keeper::KILL_INTERVAL,
    signals::{self, Notice},
    start::{Event, Job},
    tree::{self, Exit, Reaped},
    verdict::{Ended, Outcome},
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

/// Waits until every process of the job is gone.
pub(crate) fn watch(job: Job) -> Result<Ended> {
    let mut watch = Watch {
        keepers: job.ranks.iter().map(|rank| rank.keeper).collect(),
        first_failure: None,
        interrupted: None,
        keyboard: None,
        phase: Phase::Running,
        told: false,
        job,
    };
    watch.until_gone()?;
    watch.drain();
    Ok(watch.into_ended())
}

struct Watch {
    job: Job,
    /// Keepers that have not ended.
    keepers: HashSet<Pid>,
    first_failure: Option<(usize, Exit)>,
    interrupted: Option<i32>,
    /// The last signal that a key sent to the program and to us.
    keyboard: Option<(i32, Instant)>,
    phase: Phase,
    told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
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

impl Watch {
    fn until_gone(&mut self) -> Result<()> {
        while self.phase != Phase::GivenUp && !self.reap()? {
            let event = match self.next_deadline() {
                None => self.job.events.recv().ok(),
                Some(at) => self.receive_until(at),
            };
            match event {
                Some(Event::Signal(Notice::Stop {
                    signal,
                    from_terminal,
                })) => {
                    self.stop(signal, from_terminal);
                }
                Some(Event::Signal(Notice::ChildEnded)) => {}
                Some(Event::StreamClosed) => self.stream_closed(),
                None => self.deadline_passed(),
            }
        }
        Ok(())
    }

    fn receive_until(&self, at: Instant) -> Option<Event> {
        self.job
            .events
            .recv_timeout(at.saturating_duration_since(Instant::now()))
            .ok()
    }

    /// Takes notice of processes that have ended; tells whether none is left.
    fn reap(&mut self) -> Result<bool> {
        loop {
            let reaped = tree::reap().map_err(|source| Error::System {
                doing: "wait for processes",
                source,
            })?;
            match reaped {
                Reaped::Child(pid, exit) => self.ended(pid, exit),
                Reaped::AllAlive => {
                    if self.keepers.is_empty() {
                        // What the programs left behind goes after the last rank.
                        self.ask();
                    }
                    return Ok(false);
                }
                Reaped::NoneLeft => return Ok(true),
            }
        }
    }

    fn ended(&mut self, pid: Pid, exit: Exit) {
        if !self.keepers.remove(&pid) {
            return;
        }
        let failed = exit != Exit::Code(0);
        if failed && self.first_failure.is_none() && self.interrupted.is_none() {
            let rank = self.job.ranks.iter().find(|rank| rank.keeper == pid);
            self.first_failure = rank.map(|rank| (rank.rank, exit));
        }
        if failed && !self.keepers.is_empty() {
            self.ask();
        }
    }

    fn stop(&mut self, signal: i32, from_terminal: bool) {
        if self.job.shares_terminal && from_terminal && matches!(signal, SIGINT | SIGQUIT) {
            // The program has this signal too, and may want to go on: a debugger does.
            let now = Instant::now();
            let before = self.keyboard.replace((signal, now));
            if before.is_none_or(|(_, at)| now.duration_since(at) > SECOND_INTERRUPT) {
                return;
            }
        }
        if self.first_failure.is_none() {
            self.interrupted.get_or_insert(signal);
        }
        match self.phase {
            Phase::Running => self.ask(),
            Phase::Asked { .. } | Phase::Killing { .. } | Phase::GivenUp => self.kill(),
        }
    }

    /// Asks all processes to end, once.
    fn ask(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Asked {
            since: Instant::now(),
        };
        // A keeper passes the order on to everything below it.
        tree::signal_all(self.keepers.iter().copied(), Signal::TERM);
        tree::signal_all(tree::beside(&self.keepers), Signal::TERM);
    }

    fn kill(&mut self) {
        if !matches!(self.phase, Phase::Killing { .. }) {
            self.phase = Phase::Killing {
                since: Instant::now(),
            };
        }
        // Keepers stay to report how their programs ended.
        tree::signal_all(tree::below_us(&self.keepers), Signal::KILL);
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running | Phase::GivenUp => None,
            Phase::Asked { since } => {
                let kill_at = since + self.job.grace;
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
        match self.phase {
            Phase::Running | Phase::GivenUp => {}
            Phase::Asked { since } if since.elapsed() < self.job.grace => self.tell_why(since),
            Phase::Asked { .. } => self.kill(),
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
        if self.job.quiet {
            return;
        }
        let reason = match (self.first_failure, self.interrupted) {
            (Some((rank, _)), _) => format!("rank {rank} failed"),
            (None, Some(signal)) => format!("{} arrived", signals::name(signal)),
            (None, None) => "all ranks have ended".to_owned(),
        };
        let waiting = tree::below_us(&self.keepers).len();
        let left = self
            .job
            .grace
            .saturating_sub(since.elapsed())
            .as_secs_f64()
            .round();
        report::say(&format!(
            "note: {reason}; waiting up to {left} s for {waiting} processes to end (Ctrl-C ends \
             them now)\n"
        ));
    }

    fn stream_closed(&mut self) {
        self.job.open_streams = self.job.open_streams.saturating_sub(1);
    }

    /// Lets the last output through.
    fn drain(&mut self) {
        let until = Instant::now() + DRAIN;
        while self.job.open_streams > 0 && Instant::now() < until {
            if self.receive_until(until) == Some(Event::StreamClosed) {
                self.stream_closed();
            }
        }
    }

    fn into_ended(self) -> Ended {
        let survivors = match self.phase {
            Phase::GivenUp => tree::below_us(&self.keepers).len(),
            _ => 0,
        };
        let from_keyboard = self.keyboard.map(|(signal, _)| signal);
        let outcome = match (self.interrupted, self.first_failure) {
            (Some(signal), None) => Outcome::Interrupted { signal },
            (_, None) => Outcome::Success,
            (_, Some((_, Exit::Signal(signal)))) if from_keyboard == Some(signal) => {
                Outcome::Interrupted { signal }
            }
            (_, Some((rank, exit))) => {
                let tail = self.job.ranks.iter().find(|known| known.rank == rank);
                let tail = tail.and_then(|rank| rank.tail.as_ref());
                Outcome::Failed {
                    rank,
                    exit,
                    tail: tail.map(|tail| tail.lines()).unwrap_or_default(),
                }
            }
        };
        Ended {
            outcome,
            ranks: self.job.ranks.len(),
            survivors,
        }
    }
}
