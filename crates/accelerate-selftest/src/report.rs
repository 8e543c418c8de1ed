//! What is told: by rank 0 on standard output, as text or as JSON, and complaints of any rank on
//! standard error.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::seconds;
use crate::probe::Finding;

/// How a stage ended on all ranks together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All comparisons held.
    Passed { checks: usize },
    /// At least one did not.
    Failed { findings: Vec<Finding> },
    /// It did not end.
    TimedOut,
    /// It cannot be tried, and why.
    Unavailable { reason: String },
}

/// What has been told so far. Ranks other than 0 tell nothing.
#[derive(Debug)]
pub(crate) struct Report {
    is_teller: bool,
    json: bool,
    world: usize,
    start: Instant,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Counts {
    ok: usize,
    failed: usize,
    not_available: usize,
}

/// One line of JSON for a stage.
#[derive(Debug, Serialize)]
struct StageLine<'a> {
    stage: &'a str,
    status: &'static str,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notes: &'a [String],
}

/// The last line of JSON.
#[derive(Debug, Serialize)]
struct SummaryLine {
    processes: usize,
    #[serde(flatten)]
    counts: Counts,
    seconds: f64,
}

/// The room for the name of a stage.
const NAME_WIDTH: usize = 24;
/// How many findings of one stage are shown as text.
const SHOWN: usize = 12;

impl Report {
    pub(crate) fn new(rank: usize, world: usize, json: bool) -> Self {
        Self {
            is_teller: rank == 0,
            json,
            world,
            start: Instant::now(),
            counts: Counts::default(),
        }
    }

    /// Says what is going to be tried out; only as text.
    pub(crate) fn begin(&self, headline: &str) {
        if self.is_teller && !self.json {
            tell(&format!("{headline}\n"));
        }
    }

    /// A stage is over.
    pub(crate) fn stage(
        &mut self,
        name: &str,
        outcome: &Outcome,
        elapsed: Duration,
        notes: &[String],
    ) {
        match outcome {
            Outcome::Passed { .. } => self.counts.ok += 1,
            Outcome::Failed { .. } | Outcome::TimedOut => self.counts.failed += 1,
            Outcome::Unavailable { .. } => self.counts.not_available += 1,
        }
        if !self.is_teller {
            return;
        }
        tell(&match self.json {
            true => json_line(&StageLine::new(name, outcome, elapsed, notes)),
            false => text(name, outcome, elapsed, notes),
        });
    }

    /// A stage has not ended in time, and the program ends with it.
    pub(crate) fn timed_out(&mut self, name: &str, elapsed: Duration) {
        self.stage(name, &Outcome::TimedOut, elapsed, &[]);
        self.summary();
    }

    /// A stage has left a rank stuck, and the program ends with it.
    pub(crate) fn broken_off(&mut self, name: &str, elapsed: Duration, findings: &[Finding]) {
        let findings = findings.to_vec();
        self.stage(name, &Outcome::Failed { findings }, elapsed, &[]);
        self.summary();
    }

    /// Everything is over.
    pub(crate) fn summary(&self) {
        if !self.is_teller {
            return;
        }
        let elapsed = self.start.elapsed();
        let Counts {
            ok,
            failed,
            not_available,
        } = self.counts;
        tell(&match self.json {
            true => json_line(&SummaryLine {
                processes: self.world,
                counts: self.counts,
                seconds: elapsed.as_secs_f64(),
            }),
            false => format!(
                "{} on {}: {ok} ok, {failed} failed, {not_available} not available, in {}\n",
                counted(ok + failed + not_available, "stage", "stages"),
                processes(self.world),
                seconds(elapsed)
            ),
        });
    }

    /// Whether a stage has failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.counts.failed > 0
    }
}

impl<'a> StageLine<'a> {
    fn new(name: &'a str, outcome: &'a Outcome, elapsed: Duration, notes: &'a [String]) -> Self {
        let line = Self {
            stage: name,
            status: "ok",
            seconds: elapsed.as_secs_f64(),
            checks: None,
            reason: None,
            findings: &[],
            notes,
        };
        match outcome {
            Outcome::Passed { checks } => Self {
                checks: Some(*checks),
                ..line
            },
            Outcome::Failed { findings } => Self {
                status: "failed",
                findings,
                ..line
            },
            Outcome::TimedOut => Self {
                status: "timed_out",
                ..line
            },
            Outcome::Unavailable { reason } => Self {
                status: "not_available",
                reason: Some(reason),
                ..line
            },
        }
    }
}

/// `2 processes`
pub(crate) fn processes(world: usize) -> String {
    counted(world, "process", "processes")
}

fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn json_line(line: &impl Serialize) -> String {
    // These types have nothing in them that JSON could not hold.
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

fn text(name: &str, outcome: &Outcome, elapsed: Duration, notes: &[String]) -> String {
    let elapsed = seconds(elapsed);
    let result = match outcome {
        Outcome::Passed { checks } => format!("ok {elapsed}, {checks} comparisons"),
        Outcome::Failed { .. } => format!("failed {elapsed}"),
        Outcome::TimedOut => format!("failed: no end after {elapsed}"),
        Outcome::Unavailable { reason } => format!("not available: {reason}"),
    };
    let mut text = format!("{name:NAME_WIDTH$} {result}\n");
    if let Outcome::Failed { findings } = outcome {
        for finding in findings.iter().take(SHOWN) {
            text += &format!(
                "  rank {}, {}: {}: expected {}, found {}\n",
                finding.rank, finding.step, finding.what, finding.expected, finding.found
            );
        }
        if findings.len() > SHOWN {
            text += &format!("  and {} more\n", findings.len() - SHOWN);
        }
    }
    notes.iter().for_each(|note| text += &format!("  {note}\n"));
    text
}

/// Writes to standard output in one piece. Nobody is left to be told if that fails.
fn tell(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes to standard error in one piece, likewise.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(120);

    fn finding(rank: usize) -> Finding {
        Finding {
            rank,
            step: "all-reduce".to_owned(),
            what: "sum".to_owned(),
            expected: "[3.0]".to_owned(),
            found: "[4.0]".to_owned(),
        }
    }

    #[test]
    fn a_stage_is_one_line_with_what_is_wrong_below() {
        let told = text("loading", &Outcome::Passed { checks: 3 }, TIME, &[]);
        assert_eq!(told, "loading                  ok 0.12 s, 3 comparisons\n");
        let findings = vec![finding(1)];
        let told = text("collectives", &Outcome::Failed { findings }, TIME, &[]);
        assert_eq!(
            told,
            "collectives              failed 0.12 s\n  \
             rank 1, all-reduce: sum: expected [3.0], found [4.0]\n"
        );
    }

    #[test]
    fn many_findings_are_counted() {
        let findings = (0..SHOWN + 5).map(finding).collect();
        let told = text("collectives", &Outcome::Failed { findings }, TIME, &[]);
        assert_eq!(told.lines().count(), SHOWN + 2);
        assert!(told.ends_with("  and 5 more\n"), "{told}");
    }

    #[test]
    fn json_says_the_same() {
        let reason = "not yet".to_owned();
        let outcome = Outcome::Unavailable { reason };
        let line = json_line(&StageLine::new("triggers", &outcome, TIME, &[]));
        assert_eq!(
            line,
            "{\"stage\":\"triggers\",\"status\":\"not_available\",\"seconds\":0.12,\
             \"reason\":\"not yet\"}\n"
        );
        let findings = vec![finding(1)];
        let outcome = Outcome::Failed { findings };
        let line = json_line(&StageLine::new("collectives", &outcome, TIME, &[]));
        assert!(line.contains("\"findings\":[{\"rank\":1,"), "{line}");
    }
}
