//! A limit on all memory of a program, the cached pages of files included: a control group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::Failure;

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Enters the group that is the first argument, then becomes the program behind it.
const ENTER: &str = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;

/// Both kinds of control groups are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group with a limit, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    folder: PathBuf,
    version: Version,
}

impl MemoryLimit {
    /// A new group below the one of this process, or the topmost one.
    pub(crate) fn new(bytes: u64) -> Result<Self, Failure> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut tried = Vec::new();
        for (version, parent) in parents(&own) {
            match Self::below(version, &parent, bytes) {
                Ok(limit) => return Ok(limit),
                Err(error) => tried.push(format!("`{}`: {error}", parent.display())),
            }
        }
        if tried.is_empty() {
            tried.push(format!("`{MOUNT}` has no control groups of memory"));
        }
        Err(
            Failure::because("cannot limit the memory of a program", tried.join("\n")).hint(
                "control groups of memory are needed, and the right to make one: run as root, or in \
                 a unit that systemd delegates to you (`systemd-run --user --scope -p Delegate=yes`)",
            ),
        )
    }

    fn below(version: Version, parent: &Path, bytes: u64) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if version == Version::Two {
            // Fails where it is on already and may not be changed, which does no harm.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("accelerate-xtask-{}-{number}", process::id()));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let limit = Self { folder, version };
        limit.set(bytes)?;
        Ok(limit)
    }

    fn set(&self, bytes: u64) -> io::Result<()> {
        let (limit, with_swap, swap) = match self.version {
            Version::One => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                bytes.to_string(),
            ),
            Version::Two => ("memory.max", "memory.swap.max", "0".to_owned()),
        };
        fs::write(self.folder.join(limit), bytes.to_string())?;
        // Absent, or refused, where the system does not count what is swapped out.
        let swap = fs::write(self.folder.join(with_swap), swap);
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swap.is_err() && swaps.lines().count() > 1 {
            println!(
                "note: memory beyond the limit may go to the system's swap, which cannot be limited"
            );
        }
        Ok(())
    }

    /// The program within the limit.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER]).arg(&self.folder).arg(program);
        command
    }

    /// The most memory that the group ever had, where the system tells.
    pub(crate) fn peak_bytes(&self) -> Option<f64> {
        let name = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        let text = fs::read_to_string(self.folder.join(name)).ok()?;
        text.trim().parse().ok()
    }

    /// How many programs were killed because they needed more.
    pub(crate) fn kills(&self) -> u64 {
        let name = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        counted(&text, "oom_kill")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group in which a program still runs stays; the next one has another name.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The number behind a word in lines of words and numbers.
fn counted(text: &str, word: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.filter(|(name, _)| *name == word);
    found
        .filter_map(|(_, number)| number.trim().parse::<u64>().ok())
        .sum()
}

/// Groups below which one may be made, by the lines of `/proc/self/cgroup`: the own one first.
fn parents(own: &str) -> Vec<(Version, PathBuf)> {
    let mount = Path::new(MOUNT);
    let mut parents = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (version, root) = match controllers {
            "" if number == "0" => (Version::Two, mount.to_owned()),
            controllers if controllers.split(',').any(|one| one == "memory") => {
                (Version::One, mount.join("memory"))
            }
            _ => continue,
        };
        parents.push((version, root.join(path.trim_start_matches('/'))));
        parents.push((version, root));
    }
    // In a container its own group may be the one that is mounted, and not be named at all.
    parents.push((Version::One, mount.join("memory")));
    parents.push((Version::Two, mount.to_owned()));
    let mut seen = Vec::new();
    parents.retain(|(version, path)| {
        let marks = match version {
            Version::One => path.join("memory.limit_in_bytes"),
            Version::Two => path.join("cgroup.subtree_control"),
        };
        let fresh = !seen.contains(path);
        seen.push(path.clone());
        fresh && (marks.exists() || cfg!(test))
    });
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_groups_are_found() {
        let old = "9:name=systemd:/a\n4:cpu,memory:/docker/abc\n";
        let mount = Path::new(MOUNT);
        assert_eq!(
            parents(old),
            [
                (Version::One, mount.join("memory/docker/abc")),
                (Version::One, mount.join("memory")),
                (Version::Two, mount.to_owned()),
            ]
        );
        let new = parents("0::/user.slice/one.scope\n");
        assert_eq!(new[0], (Version::Two, mount.join("user.slice/one.scope")));
        assert_eq!(new[1], (Version::Two, mount.to_owned()));
        assert_eq!(parents("").len(), 2);
    }

    #[test]
    fn kills_are_counted() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(counted(text, "oom_kill"), 3);
        assert_eq!(
            counted("low 0\noom 1\noom_kill 2\noom_group_kill 1\n", "oom_kill"),
            2
        );
        assert_eq!(counted("", "oom_kill"), 0);
    }
}
