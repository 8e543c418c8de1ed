//! How much memory this process may still take.

use std::fs;
use std::path::{Path, PathBuf};

/// How many bytes of main memory this process may still take without others losing theirs: what the
/// machine has available, or what is left of the tightest limit of a control group around this
/// process, of which pages of files count as free. None where the system does not tell.
pub fn available_memory() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    available_in(Path::new("/"), &own)
}

fn available_in(root: &Path, groups: &str) -> Option<u64> {
    let left = groups.lines().flat_map(|line| left_in_groups(root, line));
    machine(root).into_iter().chain(left).min()
}

fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What one version of control groups calls its files.
struct Files {
    mounts: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    /// The pages of files, in `memory.stat`.
    cached: [&'static str; 2],
}

const VERSION_1: Files = Files {
    mounts: &["sys/fs/cgroup/memory"],
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_active_file", "total_inactive_file"],
};
const VERSION_2: Files = Files {
    mounts: &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
    limit: "memory.max",
    usage: "memory.current",
    cached: ["active_file", "inactive_file"],
};

/// What is left in a group and in all groups around it. Inside a container the path of the group may
/// be that of the host, of which only the end of the chain exists here.
fn left_in_groups(root: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
    let files = match controllers {
        "" => &VERSION_2,
        some if some.split(',').any(|known| known == "memory") => &VERSION_1,
        _ => return Vec::new(),
    };
    let group = Path::new(group.trim_start_matches('/'));
    let mounts = files.mounts.iter().map(|mount| root.join(mount));
    let folders = mounts.flat_map(|mount| group.ancestors().map(move |part| mount.join(part)));
    folders
        .filter_map(|folder: PathBuf| left_in(&folder, files))
        .collect()
}

fn left_in(folder: &Path, files: &Files) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let limit = number(files.limit)?;
    let used = number(files.usage).unwrap_or(0);
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        files
            .cached
            .contains(&name)
            .then(|| bytes.trim().parse::<u64>().ok())?
    });
    let held = used.saturating_sub(cached.sum::<u64>());
    Some(limit.saturating_sub(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let meminfo = (
            "proc/meminfo",
            "MemTotal: 4096 kB\nMemAvailable:  2048 kB\n",
        );
        for (path, text) in [meminfo].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_counts_and_cached_files_are_free() {
        let root = machine_with(&[
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "900\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 200\nactive_file 300\ninactive_file 400\n",
            ),
        ]);
        assert_eq!(available_in(root.path(), "0::/a/b\n"), Some(800));
        assert_eq!(available_in(root.path(), ""), Some(2048 * 1024));
    }

    #[test]
    fn the_first_version_of_control_groups_is_read_too() {
        let root = machine_with(&[
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "600\n"),
            (
                "sys/fs/cgroup/memory/job/memory.stat",
                "total_inactive_file 500\nhierarchical_memory_limit 1000\n",
            ),
        ]);
        let groups = "4:cpu,memory:/job\n2:cpuset:/\n";
        assert_eq!(available_in(root.path(), groups), Some(900));
    }
}
