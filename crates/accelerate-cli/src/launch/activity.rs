//! What each rank is doing, as far as the system tells: for a job that hangs.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::start::{Attempt, Rank};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod system_calls;

/// How long processor use is measured.
const SAMPLE: Duration = Duration::from_millis(100);

/// What one rank is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Activity {
    /// State, place in the kernel, use of processors.
    pub(crate) state: String,
    /// Its last output, if that passes through the launcher.
    pub(crate) last_output: Option<String>,
}

/// What each rank is doing, in their order. Takes a tenth of a second.
pub(crate) fn of_ranks(attempt: &Attempt) -> Vec<Activity> {
    let before: Vec<_> = attempt.ranks.iter().map(Look::at).collect();
    let since = Instant::now();
    thread::sleep(SAMPLE);
    let pairs = attempt.ranks.iter().zip(before);
    pairs
        .map(|(rank, before)| Activity {
            state: Look::at(rank).describe(rank, &before, since.elapsed()),
            last_output: last_output(rank),
        })
        .collect()
}

/// One line for each rank, and one for its last output.
pub(crate) fn lines(attempt: &Attempt, activities: &[Activity]) -> Vec<String> {
    let pairs = attempt.ranks.iter().zip(activities);
    pairs
        .flat_map(|(rank, activity)| {
            let pid = rank.program.map(|pid| format!(" (process {pid})"));
            let pid = pid.unwrap_or_default();
            let state = format!("rank {}{pid}: {}", rank.rank, activity.state);
            let output = activity.last_output.as_ref();
            let output = output.map(|output| format!("  {output}"));
            [Some(state), output].into_iter().flatten()
        })
        .collect()
}

fn last_output(rank: &Rank) -> Option<String> {
    let seen = rank.seen.as_ref()?;
    let streams = [&seen.stdout, &seen.stderr].map(|tail| Some((tail.last_output()?, tail)));
    let Some((at, tail)) = streams.into_iter().flatten().max_by_key(|(at, _)| *at) else {
        return Some("no output yet".to_owned());
    };
    let ago = at.elapsed().as_secs_f64();
    let line = tail.lines().pop().unwrap_or_default();
    Some(format!("last output {ago:.1} s ago: `{line}`"))
}

/// One look at a rank.
struct Look {
    #[cfg(target_os = "linux")]
    process: Option<linux::Process>,
}

impl Look {
    fn at(rank: &Rank) -> Self {
        let _ = rank;
        Self {
            #[cfg(target_os = "linux")]
            process: rank.program.and_then(linux::Process::look_at),
        }
    }

    /// What a rank is doing, in words; `before` is an earlier look, `between` the time since.
    fn describe(&self, rank: &Rank, before: &Self, between: Duration) -> String {
        if let Some(end) = rank.end {
            return format!("has ended: {}", end.exit);
        }
        #[cfg(target_os = "linux")]
        if let Some(process) = &self.process {
            return process.describe(before.process.as_ref(), between);
        }
        let _ = (before, between);
        "runs; the system tells nothing about it".to_owned()
    }
}
