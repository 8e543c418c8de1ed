//! Memory of this machine, and how much of it a container lets us use.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::Root;

/// Main memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What the machine has.
    pub(crate) total: u64,
    /// What the container of this process may use, if that is less.
    pub(crate) limit: Option<u64>,
}

impl Memory {
    /// Reads the memory; `None` if the system does not tell.
    pub(crate) fn read(root: &Root) -> Option<Self> {
        let total = total(root)?;
        let limit = limit(root).filter(|limit| *limit < total);
        Some(Self { total, limit })
    }

    /// What this process and its children may use together, in bytes.
    pub(crate) fn usable(&self) -> u64 {
        self.limit.unwrap_or(self.total)
    }
}

fn total(root: &Root) -> Option<u64> {
    if cfg!(target_os = "macos") {
        let asked = Command::new("/usr/sbin/sysctl")
            .args(["-n", "hw.memsize"])
            .output();
        let answer = String::from_utf8(asked.ok()?.stdout).ok()?;
        return answer.trim().parse().ok();
    }
    let text = root.text("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The smallest limit of the control groups around this process.
fn limit(root: &Root) -> Option<u64> {
    let text = root.text("/proc/self/cgroup").unwrap_or_default();
    let groups = text.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
        limit_files(controllers, group)
    });
    groups
        .filter_map(|file| root.text(file)?.parse().ok())
        .min()
}

/// Where the limits of a group and of all groups around it are written. Inside a container the path
/// of the group may be that of the host, of which only the end of the chain exists here.
fn limit_files(controllers: &str, group: &str) -> Vec<PathBuf> {
    let (mounts, name): (&[_], _) = if controllers.is_empty() {
        (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max")
    } else if controllers.split(',').any(|known| known == "memory") {
        (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let group = Path::new(group.trim_start_matches('/'));
    mounts
        .iter()
        .flat_map(|mount| {
            group
                .ancestors()
                .map(move |part| Path::new(mount).join(part).join(name))
        })
        .collect()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::{super::root::pretend::Pretend, *};

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       1048576 kB\nMemFree:  1 kB\n",
    );
    const GIB: u64 = 1 << 30;

    fn read(files: &[(&str, &str)]) -> Memory {
        let machine = Pretend::with(files);
        machine.add(MEMINFO.0, MEMINFO.1);
        Memory::read(&machine.root()).unwrap()
    }

    #[test]
    fn a_machine_without_limits_has_all_its_memory() {
        let memory = read(&[]);
        assert_eq!((memory.total, memory.limit), (GIB, None));
        let unlimited = read(&[
            ("proc/self/cgroup", "0::/user/a\n"),
            ("sys/fs/cgroup/user/a/memory.max", "max\n"),
        ]);
        assert_eq!(unlimited.usable(), GIB);
    }

    #[test]
    fn the_smallest_limit_around_this_process_counts() {
        let memory = read(&[
            ("proc/self/cgroup", "0::/user/a\n"),
            ("sys/fs/cgroup/user/a/memory.max", "900000000\n"),
            ("sys/fs/cgroup/user/memory.max", "800000000\n"),
        ]);
        assert_eq!(memory.limit, Some(800_000_000));
        let container = read(&[
            ("proc/self/cgroup", "0::/docker/of/the/host\n"),
            ("sys/fs/cgroup/memory.max", "700000000\n"),
        ]);
        assert_eq!(container.usable(), 700_000_000);
    }

    #[test]
    fn control_groups_of_the_first_version_are_read_too() {
        let memory = read(&[
            ("proc/self/cgroup", "4:cpu,memory:/job\n2:cpuset:/\n"),
            (
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                "600000000\n",
            ),
            // The way in which this version says "no limit".
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ]);
        assert_eq!(memory.limit, Some(600_000_000));
    }

    #[test]
    fn a_system_that_does_not_tell_is_not_guessed_at() {
        assert_eq!(Memory::read(&Pretend::with(&[]).root()), None);
    }
}
