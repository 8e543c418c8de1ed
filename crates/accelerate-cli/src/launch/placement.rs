//! On which CPUs each rank runs.

use std::io;

/// The CPUs of each rank of this machine, by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    ranks: Vec<Vec<usize>>,
}

impl Placement {
    /// A placement by local rank. A rank with no CPU, or beyond the end, runs anywhere.
    pub(crate) fn new(ranks: Vec<Vec<usize>>) -> Self {
        Self { ranks }
    }

    /// The CPUs of one rank; none if it may run anywhere.
    pub(crate) fn of(&self, local_rank: usize) -> &[usize] {
        self.ranks.get(local_rank).map_or(&[], Vec::as_slice)
    }

    /// One line for each local rank.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(rank, cpus): (usize, &Vec<usize>)| match cpus.is_empty() {
            true => format!("local rank {rank}: any CPU"),
            false => format!("local rank {rank}: CPUs {}", to_text(cpus)),
        };
        self.ranks.iter().enumerate().map(line).collect()
    }
}

/// CPUs as the system writes them: `0-3,8`.
pub(crate) fn to_text(cpus: &[usize]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs: Vec<String> = sorted
        .chunk_by(|before, after| before + 1 == *after)
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        })
        .collect();
    runs.join(",")
}

/// Binds this thread, and what it starts from now on, to some CPUs.
#[cfg(target_os = "linux")]
pub(crate) fn apply(cpus: &[usize]) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// No other system lets a process choose.
#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(_cpus: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_written_as_runs() {
        for (cpus, text) in [
            (vec![], ""),
            (vec![5], "5"),
            (vec![0, 1, 2, 3, 8], "0-3,8"),
            (vec![1, 3, 4], "1,3-4"),
        ] {
            assert_eq!(to_text(&cpus), text);
        }
        assert_eq!(to_text(&[3, 1, 2, 2]), "1-3");
    }

    #[test]
    fn a_placement_is_told_by_rank() {
        let placement = Placement::new(vec![vec![0, 1], vec![]]);
        assert_eq!(placement.of(0), [0, 1]);
        assert!(placement.of(7).is_empty());
        assert_eq!(
            placement.lines(),
            ["local rank 0: CPUs 0-1", "local rank 1: any CPU"]
        );
    }
}
