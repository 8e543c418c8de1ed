//! How an attempt ended.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use accelerate_plan::LEFT_EARLY;
use serde_json::Value;

use super::{
    activity::Activity,
    error_file::Reported,
    memory_kills, signals,
    start::{Attempt, End, Rank},
    tree::Exit,
};

/// The exit code after a time limit has passed, as for the command `timeout`.
pub(crate) const TIMED_OUT: u8 = 124;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Number of the attempt, from 0.
    pub(crate) attempt: usize,
    pub(crate) started: SystemTime,
    pub(crate) ended: SystemTime,
    pub(crate) outcome: Outcome,
    /// Processes of the job on all machines.
    pub(crate) world_size: usize,
    /// The ranks of this machine; none if it ended before they were started.
    pub(crate) ranks: Vec<RankEnd>,
    /// Processes that could not be ended.
    pub(crate) survivors: usize,
    /// How often the system killed a process of the machine meanwhile because memory ran out.
    pub(crate) memory_kills: u64,
}

/// The first rank that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstFailure {
    pub(crate) rank: usize,
    pub(crate) exit: Exit,
}

impl fmt::Display for FirstFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {}", self.rank, self.exit)
    }
}

/// Why it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every rank returned 0.
    Success,
    /// Every rank returned 0 or [`LEFT_EARLY`], and one at least this: the job was asked to end and
    /// has saved where it stands.
    Left,
    /// A rank of this machine was the first to fail.
    Failed {
        /// Index in [`Ended::ranks`].
        index: usize,
        exit: Exit,
    },
    /// A rank on another machine failed.
    PeerFailed { description: String },
    /// The launcher was asked to end.
    Interrupted { signal: i32 },
    /// The whole job took longer than this.
    TimedOut { limit: Duration },
}

/// How one rank ended.
#[derive(Debug, Clone)]
pub(crate) struct RankEnd {
    pub(crate) rank: usize,
    pub(crate) local_rank: usize,
    /// Number of the program's process, if its keeper could tell.
    pub(crate) pid: Option<i32>,
    /// `None` if it could not be ended.
    pub(crate) end: Option<End>,
    /// Last lines of its stderr, if they passed through the launcher.
    pub(crate) last_lines: Vec<String>,
    /// Where its whole stderr is.
    pub(crate) stderr_log: Option<PathBuf>,
    /// What the program said about its failure.
    pub(crate) reported: Option<Reported>,
    /// What it was doing when the time was up.
    pub(crate) activity: Option<Activity>,
}

impl Ended {
    /// An attempt that ended while its machines were still to meet.
    pub(crate) fn before_start(attempt: usize, outcome: Outcome) -> Self {
        let now = SystemTime::now();
        Self {
            attempt,
            started: now,
            ended: now,
            outcome,
            world_size: 0,
            ranks: Vec::new(),
            survivors: 0,
            memory_kills: 0,
        }
    }

    /// An attempt that is over.
    pub(crate) fn new(
        attempt: &Attempt,
        outcome: Outcome,
        activities: Vec<Activity>,
        survivors: usize,
    ) -> Self {
        let mut ranks: Vec<RankEnd> = attempt.ranks.iter().map(RankEnd::new).collect();
        for (rank, activity) in ranks.iter_mut().zip(activities) {
            rank.activity = Some(activity);
        }
        Self {
            attempt: attempt.number,
            started: attempt.started,
            ended: SystemTime::now(),
            outcome: if left(&outcome, &ranks) {
                Outcome::Left
            } else {
                with_earliest_cause(outcome, &ranks)
            },
            world_size: attempt.world_size,
            ranks,
            survivors,
            memory_kills: memory_kills::count()
                .zip(attempt.memory_kills)
                .map_or(0, |(now, before)| now.saturating_sub(before)),
        }
    }

    /// The exit code of the launcher if this attempt was the last one.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.outcome {
            Outcome::Success => 0,
            Outcome::Left => LEFT_EARLY,
            Outcome::Failed { exit, .. } => exit.code(),
            Outcome::PeerFailed { .. } => 1,
            Outcome::Interrupted { signal } => Exit::Signal(signal).code(),
            Outcome::TimedOut { .. } => TIMED_OUT,
        }
    }
}

impl RankEnd {
    fn new(rank: &Rank) -> Self {
        Self {
            rank: rank.rank,
            local_rank: rank.local_rank,
            pid: rank.program.map(|pid| pid.as_raw_nonzero().get()),
            end: rank.end,
            last_lines: rank
                .seen
                .as_ref()
                .map(|seen| seen.stderr.lines())
                .unwrap_or_default(),
            stderr_log: rank.stderr_log.clone(),
            reported: rank.error_file.as_ref().and_then(|file| file.read()),
            activity: None,
        }
    }

    /// The end in a few words.
    pub(crate) fn in_words(&self) -> String {
        match self.end {
            None => "could not be ended".to_owned(),
            Some(End {
                exit: Exit::Signal(signal),
                by_launcher: true,
                ..
            }) => format!("ended by the launcher ({})", signals::name(signal)),
            Some(end) => end.exit.to_string(),
        }
    }

    /// When it failed, in seconds since 1970, if it failed.
    fn failed_at(&self) -> Option<u64> {
        let end = self.end.filter(|end| end.exit != Exit::Code(0))?;
        let noticed = end.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let said = self.reported.as_ref().and_then(|said| said.timestamp);
        Some(said.unwrap_or(noticed.as_secs()))
    }
}

/// Whether the ranks saved and left because somebody asked for it, be it through this launcher.
fn left(outcome: &Outcome, ranks: &[RankEnd]) -> bool {
    let may_be = matches!(outcome, Outcome::Success | Outcome::Interrupted { .. });
    let exits = || ranks.iter().map(|rank| rank.end.map(|end| end.exit));
    let fine = |exit| matches!(exit, Some(Exit::Code(0 | LEFT_EARLY)));
    may_be && exits().all(fine) && exits().any(|exit| exit == Some(Exit::Code(LEFT_EARLY)))
}

/// A rank may fail later than another and yet be noticed first. Where programs say when they failed,
/// an earlier second decides.
fn with_earliest_cause(outcome: Outcome, ranks: &[RankEnd]) -> Outcome {
    let Outcome::Failed { index, .. } = outcome else {
        return outcome;
    };
    let key = |rank: &RankEnd| {
        let said = rank.reported.as_ref()?.timestamp;
        said.and(rank.failed_at())
    };
    let noticed = ranks.get(index).and_then(RankEnd::failed_at);
    let earliest = ranks.iter().enumerate().filter_map(|(index, rank)| {
        let exit = rank.end?.exit;
        Some((key(rank)?, index, exit))
    });
    match earliest.min_by_key(|(at, ..)| *at) {
        Some((at, index, exit)) if noticed.is_some_and(|noticed| at < noticed) => {
            Outcome::Failed { index, exit }
        }
        _ => outcome,
    }
}

impl Reported {
    /// The first line of the message.
    pub(crate) fn headline(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    /// The stack of the program, as Python writes it.
    pub(crate) fn stack(&self) -> Option<&str> {
        let stack = &self.content["message"]["extraInfo"]["py_callstack"];
        Value::as_str(stack).filter(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rank(rank: usize, exit: Exit, said_at: Option<u64>) -> RankEnd {
        RankEnd {
            rank,
            local_rank: rank,
            pid: None,
            end: Some(End {
                exit,
                at: UNIX_EPOCH + Duration::from_millis(100_500),
                by_launcher: false,
            }),
            last_lines: Vec::new(),
            stderr_log: None,
            reported: said_at.map(|at| Reported {
                message: "boom\nmore".to_owned(),
                timestamp: Some(at),
                content: json!({}),
            }),
            activity: None,
        }
    }

    #[test]
    fn the_rank_that_says_it_failed_in_an_earlier_second_is_the_cause() {
        let noticed = Outcome::Failed {
            index: 0,
            exit: Exit::Code(1),
        };
        let ranks = |first, second| {
            [
                rank(0, Exit::Code(1), first),
                rank(1, Exit::Code(2), second),
            ]
        };
        let cause = |first, second| with_earliest_cause(noticed.clone(), &ranks(first, second));
        let other = Outcome::Failed {
            index: 1,
            exit: Exit::Code(2),
        };
        assert_eq!(cause(None, Some(99)), other);
        assert_eq!(cause(Some(100), Some(99)), other);
        assert_eq!(cause(None, Some(100)), noticed, "the same second");
        assert_eq!(cause(Some(98), Some(99)), noticed);
        assert_eq!(cause(None, None), noticed);
        assert_eq!(
            with_earliest_cause(Outcome::Success, &ranks(None, Some(1))),
            Outcome::Success
        );
    }

    #[test]
    fn ranks_that_left_early_did_not_fail() {
        let asked = Outcome::Interrupted { signal: 15 };
        let ended = |codes: [u8; 2]| {
            let ranks = [
                rank(0, Exit::Code(codes[0]), None),
                rank(1, Exit::Code(codes[1]), None),
            ];
            (left(&asked, &ranks), left(&Outcome::Success, &ranks))
        };
        assert_eq!(ended([75, 75]), (true, true));
        assert_eq!(ended([0, 75]), (true, true));
        assert_eq!(ended([0, 0]), (false, false));
        assert_eq!(ended([75, 1]), (false, false));
        let killed = [
            rank(0, Exit::Code(75), None),
            rank(1, Exit::Signal(9), None),
        ];
        assert!(!left(&asked, &killed));
    }

    #[test]
    fn a_rank_that_succeeded_is_no_cause() {
        let noticed = Outcome::Failed {
            index: 0,
            exit: Exit::Code(1),
        };
        let ranks = [
            rank(0, Exit::Code(1), None),
            rank(1, Exit::Code(0), Some(5)),
        ];
        assert_eq!(with_earliest_cause(noticed.clone(), &ranks), noticed);
    }
}
