//! One process as `/proc` shows it.

use std::{fs, time::Duration};

use rustix::process::Pid;

use super::system_calls;
use crate::launch::tree;

/// A look at one process.
#[derive(Debug, PartialEq)]
pub(super) struct Process {
    state: char,
    /// Processor time of all its threads.
    busy: Duration,
    threads: usize,
    /// The system call in which its first thread waits.
    call: Option<String>,
    /// The function of the kernel in which it waits.
    place: Option<String>,
    /// Processes below it.
    below: usize,
}

impl Process {
    /// `None` if it is gone.
    pub(super) fn look_at(pid: Pid) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let (state, busy, threads) = parse(&String::from_utf8_lossy(&stat))?;
        let place = read("wchan").filter(|name| !matches!(name.as_str(), "" | "0"));
        Some(Self {
            state,
            busy,
            threads,
            call: read("syscall").and_then(|line| system_calls::of_line(&line)),
            place,
            below: tree::below(pid).len(),
        })
    }

    /// What it does, in words.
    pub(super) fn describe(&self, before: Option<&Self>, between: Duration) -> String {
        let state = match self.state {
            'R' => "running",
            'S' => "waiting",
            'D' => "waiting for a device, cannot be interrupted",
            'T' => "stopped by a signal",
            't' => "stopped by a debugger",
            'Z' | 'X' => "ended",
            'I' => "idle",
            _ => "in an unknown state",
        };
        let mut text = state.to_owned();
        if let Some(call) = &self.call {
            text += &format!(" in `{call}`");
        }
        if let Some(place) = &self.place {
            text += &format!(" (kernel function `{place}`)");
        }
        if let Some(before) = before.filter(|_| !between.is_zero()) {
            let busy = self.busy.saturating_sub(before.busy);
            let cores = busy.as_secs_f64() / between.as_secs_f64();
            text += &format!(", uses {cores:.1} cores");
        }
        let seconds = self.busy.as_secs_f64();
        text += &format!(", {seconds:.2} s of processor time, ");
        text += &match self.threads {
            1 => "1 thread".to_owned(),
            count => format!("{count} threads"),
        };
        text += &match self.below {
            0 => String::new(),
            1 => ", 1 process below it".to_owned(),
            count => format!(", {count} processes below it"),
        };
        text
    }
}

/// Reads state, processor time and number of threads from `/proc/PID/stat`. The name of the process
/// may hold anything, brackets included.
fn parse(stat: &str) -> Option<(char, Duration, usize)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some((
        fields.first()?.chars().next()?,
        Duration::from_millis(ticks * 1000 / per_second),
        usize::try_from(number(17)?).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "17 (a) b (c) S 1 17 17 0 -1 4194560 1 0 0 0 150 50 7 8 20 0 6 0 100 1 1";

    #[test]
    fn a_line_of_the_system_is_read() {
        assert_eq!(parse(STAT), Some(('S', Duration::from_secs(2), 6)));
        assert_eq!(parse("17 (a) S 1"), None);
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let look = Process::look_at(rustix::process::getpid()).unwrap();
        assert!(look.threads > 0);
        assert_eq!(Process::look_at(Pid::from_raw(i32::MAX).unwrap()), None);
    }

    #[test]
    fn a_description_names_what_is_known_only() {
        let process = |busy| Process {
            state: 'S',
            busy: Duration::from_millis(busy),
            threads: 6,
            call: None,
            place: None,
            below: 0,
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            process(2500).describe(Some(&process(2000)), second),
            "waiting, uses 0.5 cores, 2.50 s of processor time, 6 threads"
        );
        let known = Process {
            call: Some("futex".to_owned()),
            place: Some("futex_wait_queue".to_owned()),
            below: 2,
            ..process(10)
        };
        assert_eq!(
            known.describe(None, second),
            "waiting in `futex` (kernel function `futex_wait_queue`), 0.01 s of processor time, \
             6 threads, 2 processes below it"
        );
    }
}
