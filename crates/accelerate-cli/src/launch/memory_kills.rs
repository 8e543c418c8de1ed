//! How often the system has killed a process because memory ran out.

use std::fs;

/// The count since the machine started, over all processes and all memory limits; `None` if the
/// system does not tell. A rise while a job runs explains a SIGKILL that nobody sent.
pub(crate) fn count() -> Option<u64> {
    parse(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse(vmstat: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    vmstat.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_system_is_found() {
        let text = "drop_slab 0\noom_kill 3\noom_kill_other 9\n";
        assert_eq!(parse(text), Some(3));
        assert_eq!(parse("drop_slab 0\n"), None);
    }
}
