//! The processes below this one: who they are, how to signal them, how they ended.

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
};

use rustix::{
    io::Errno,
    process::{self, Pid, Signal, WaitOptions, WaitStatus},
};

use super::signals;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It returned this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

impl Exit {
    /// The exit code that stands for this end: 128 is added to a signal.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    fn of(status: WaitStatus) -> Option<Self> {
        let code = status
            .exit_status()
            .map(|code| Self::Code(u8::try_from(code).unwrap_or(1)));
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (None, Some(signal)) => Self::Signal(signal),
            (code, _) => Self::Code(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => {
                let name = signals::name(*signal);
                write!(f, "killed by {name} (exit code {})", self.code())
            }
        }
    }
}

/// What became of the children of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This one has ended.
    Child(Pid, Exit),
    /// No other has ended yet.
    AllAlive,
    /// There are none.
    NoneLeft,
}

/// Takes notice of one child that has ended, without waiting.
pub(crate) fn reap() -> io::Result<Reaped> {
    loop {
        match process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(exit) = Exit::of(status) {
                    return Ok(Reaped::Child(pid, exit));
                }
            }
            Ok(None) => return Ok(Reaped::AllAlive),
            Err(Errno::CHILD) => return Ok(Reaped::NoneLeft),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes this process the parent of all orphans below it, so that none gets out of reach.
///
/// Only Linux has this. Elsewhere a process that leaves its parent and its group escapes.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    process::set_child_subreaper(Some(process::getpid()))?;
    Ok(())
}

/// The processes below this one, except `keepers`.
pub(crate) fn below_us(keepers: &HashSet<Pid>) -> Vec<Pid> {
    collect(process::getpid(), keepers, Keepers::PassThrough)
}

/// The processes below this one that are not below one of `keepers` either.
pub(crate) fn beside(keepers: &HashSet<Pid>) -> Vec<Pid> {
    collect(process::getpid(), keepers, Keepers::Shield)
}

/// The processes below another one.
pub(crate) fn below(pid: Pid) -> Vec<Pid> {
    collect(pid, &HashSet::new(), Keepers::PassThrough)
}

/// Sends a signal. Processes that are gone by now are no error.
pub(crate) fn signal_all(pids: impl IntoIterator<Item = Pid>, signal: Signal) {
    for pid in pids {
        let _ = process::kill_process(pid, signal);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keepers {
    PassThrough,
    Shield,
}

fn collect(top: Pid, keepers: &HashSet<Pid>, treatment: Keepers) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (pid, parent) in table::processes() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut open = vec![top];
    while let Some(parent) = open.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            let is_keeper = keepers.contains(&pid);
            if !is_keeper {
                found.push(pid);
            }
            if !is_keeper || treatment == Keepers::PassThrough {
                open.push(pid);
            }
        }
    }
    found
}

/// The system's process table as pairs of a process and its parent, without those that have ended.
#[cfg(target_os = "linux")]
mod table {
    use std::fs;

    use rustix::process::Pid;

    pub(super) fn processes() -> Vec<(Pid, Pid)> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
            .filter_map(|entry| parse(&fs::read(entry.path().join("stat")).ok()?))
            .collect()
    }

    /// Reads `pid (name) state parent ...`; the name may hold anything, brackets included.
    pub(super) fn parse(stat: &[u8]) -> Option<(Pid, Pid)> {
        let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
        let pid = str::from_utf8(stat.get(..stat.iter().position(|byte| *byte == b' ')?)?).ok()?;
        let rest = str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?;
        let number = |text: &str| text.parse().ok().and_then(Pid::from_raw);
        let ended = matches!(state, "Z" | "X");
        if ended {
            None
        } else {
            Some((number(pid)?, number(parent)?))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod table {
    use std::process::Command;

    use rustix::process::Pid;

    pub(super) fn processes() -> Vec<(Pid, Pid)> {
        let Ok(listed) = Command::new("ps")
            .args(["-axo", "pid=,ppid=,stat="])
            .output()
        else {
            return Vec::new();
        };
        String::from_utf8_lossy(&listed.stdout)
            .lines()
            .filter_map(parse)
            .collect()
    }

    fn parse(line: &str) -> Option<(Pid, Pid)> {
        let mut fields = line.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok().and_then(Pid::from_raw);
        let pair = (number()?, number()?);
        (!fields.next()?.starts_with('Z')).then_some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn names_with_brackets_and_spaces_do_not_confuse_the_table() {
        let pid = |number| Pid::from_raw(number).unwrap();
        assert_eq!(
            table::parse(b"17 (a) S 99 (x) R 4 17 17 0"),
            Some((pid(17), pid(4)))
        );
        assert_eq!(table::parse(b"17 (gone) Z 4 17"), None);
        assert_eq!(table::parse(b"nonsense"), None);
    }

    #[test]
    fn exit_codes_of_signals_start_at_128() {
        assert_eq!(Exit::Code(7).code(), 7);
        assert_eq!(Exit::Signal(9).code(), 137);
    }
}
