//! The view as plain lines, one after another: for files, pipes, terminals that can do no more, and
//! for reading aloud.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use super::{
    snapshot::{RankView, Snapshot},
    source::{Page, Source},
    words,
};
use crate::plain_text;

/// How often a line is written while a run goes on.
const INTERVAL: Duration = Duration::from_secs(10);
/// How often the run is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Writes a line now and then until the run is over.
///
/// # Errors
/// If they cannot be written.
pub(super) fn follow(source: &mut Source, out: &mut impl Write) -> io::Result<()> {
    let mut told = Told::default();
    let mut next = Instant::now();
    loop {
        let snapshot = source.snapshot(Page::default());
        let is_over = snapshot.state.is_over();
        for line in told.news(&snapshot, is_over || Instant::now() >= next) {
            writeln!(out, "{}", plain_text::line(&line))?;
            next = Instant::now() + INTERVAL;
        }
        out.flush()?;
        if is_over {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}

/// What has been said already.
#[derive(Debug, Default)]
struct Told {
    header: Option<String>,
    step: Option<i64>,
    notices: Vec<String>,
    problem: Option<String>,
}

impl Told {
    /// What is new; how far the run has come only if it is `due`.
    fn news(&mut self, snapshot: &Snapshot, due: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let header = format!("run {}: {}", snapshot.name, snapshot.state.words());
        if !snapshot.name.is_empty() && self.header.as_ref() != Some(&header) {
            lines.push(header.clone());
            self.header = Some(header);
        }
        if snapshot.problem.is_some() && self.problem != snapshot.problem {
            lines.extend(snapshot.problem.iter().map(|text| format!("note: {text}")));
        }
        self.problem.clone_from(&snapshot.problem);
        let fresh = snapshot
            .notices
            .iter()
            .filter(|notice| !self.notices.contains(notice));
        lines.extend(fresh.map(|notice| format!("warning: {notice}")));
        self.notices.clone_from(&snapshot.notices);
        if due && snapshot.step != self.step {
            lines.push(progress(snapshot));
            lines.extend(snapshot.ranks.iter().map(rank));
            self.step = snapshot.step;
        }
        lines
    }
}

fn progress(snapshot: &Snapshot) -> String {
    let mut words = Vec::new();
    if let Some(step) = snapshot.step {
        words.push(match snapshot.total_steps {
            Some(total) => format!("step {step} of {total}"),
            None => format!("step {step}"),
        });
    }
    words.extend(snapshot.elapsed.map(words::duration));
    let values = snapshot.latest.iter();
    words.extend(values.map(|(name, value)| format!("{name} {}", words::number(*value))));
    words.join("  ")
}

fn rank(rank: &RankView) -> String {
    let whole = rank.split.whole();
    let mut line = format!(
        "  rank {}: step {}, {} a step",
        rank.rank,
        rank.step,
        words::seconds(whole)
    );
    if whole > 0.0 {
        let parts = rank.split.parts();
        let parts = parts.map(|(name, seconds)| format!("{name} {:.0}%", 100.0 * seconds / whole));
        line += &format!(" ({})", parts.join(", "));
    }
    if let Some(rate) = rank.samples_per_second {
        line += &format!(", {} samples/s", words::number(rate));
    }
    if rank.is_straggler {
        line += ", STRAGGLER";
    }
    line
}

#[cfg(test)]
mod tests {
    use accelerate_tracking::run::TimeSplit;

    use super::{
        super::snapshot::{Split, State},
        *,
    };

    fn snapshot(step: i64) -> Snapshot {
        Snapshot {
            name: "demo / 1".to_owned(),
            state: State::Running,
            elapsed: Some(Duration::from_secs(75)),
            step: Some(step),
            total_steps: Some(10),
            latest: vec![("loss".to_owned(), 0.5)],
            ranks: vec![RankView {
                rank: 1,
                step,
                split: Split(TimeSplit {
                    compute: 0.3,
                    communication: 0.1,
                    ..TimeSplit::default()
                }),
                is_straggler: true,
                ..RankView::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn each_thing_is_said_once() {
        let mut told = Told::default();
        let first = told.news(&snapshot(3), true);
        assert_eq!(
            first,
            [
                "run demo / 1: running",
                "step 3 of 10  1 min 15 s  loss 0.5000",
                "  rank 1: step 3, 0.40 s a step (data wait 0%, compute 75%, communication 25%, \
                 other 0%), STRAGGLER",
            ]
        );
        assert!(told.news(&snapshot(3), true).is_empty());
        assert!(told.news(&snapshot(4), false).is_empty(), "it is not due");
        let mut later = snapshot(4);
        later.notices.push("rank 0: low".to_owned());
        assert_eq!(told.news(&later, false), ["warning: rank 0: low"]);
        later.state = State::Failed("no memory".to_owned());
        assert_eq!(told.news(&later, true).len(), 3);
    }

    #[test]
    fn nothing_is_said_of_a_run_that_is_not_there() {
        assert!(Told::default().news(&Snapshot::default(), true).is_empty());
    }
}
