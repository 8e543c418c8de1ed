//! On which CPUs each rank runs.

use std::io;

use crate::machine::CpuList;

/// The CPUs of each rank of this machine, by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    ranks: Vec<CpuList>,
}

impl Placement {
    /// A placement by local rank. A rank with no CPU, or beyond the end, runs anywhere.
    pub(crate) fn new(ranks: Vec<CpuList>) -> Self {
        Self { ranks }
    }

    /// The CPUs of one rank; none if it may run anywhere.
    pub(crate) fn of(&self, local_rank: usize) -> CpuList {
        self.ranks.get(local_rank).cloned().unwrap_or_default()
    }

    /// One line for each local rank.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(rank, cpus): (usize, &CpuList)| match cpus.is_empty() {
            true => format!("local rank {rank}: any CPU"),
            false => format!("local rank {rank}: CPUs {cpus}"),
        };
        self.ranks.iter().enumerate().map(line).collect()
    }
}

/// Binds this thread, and what it starts from now on, to some CPUs.
#[cfg(target_os = "linux")]
pub(crate) fn apply(cpus: &CpuList) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// No other system lets a process choose.
#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(_cpus: &CpuList) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_told_by_rank() {
        let placement = Placement::new(vec![(0..2).collect(), CpuList::default()]);
        assert_eq!(placement.of(0).to_string(), "0-1");
        assert!(placement.of(7).is_empty());
        assert_eq!(
            placement.lines(),
            ["local rank 0: CPUs 0-1", "local rank 1: any CPU"]
        );
    }
}
