//! CPU cores that this process may use, and how processes share them.

use std::{collections::BTreeSet, num::NonZeroUsize, thread};

use accelerate_plan::{
    Result,
    env::{Environment, MPI_LOCALNRANKS, MV2_LOCAL_SIZE, OMPI_LOCAL_SIZE},
    env::{Found, OMP_NUM_THREADS},
    launch::Threads,
};

use super::{CpuList, Root};

/// The cores that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// CPUs that the affinity of this process allows; empty if the system does not tell.
    pub(crate) allowed: CpuList,
    /// CPUs that may be busy at the same time: the affinity, and the limit of the container.
    pub(crate) usable: NonZeroUsize,
    /// Physical cores among these. A core may offer several CPUs, but computes on one at full speed.
    pub(crate) physical: NonZeroUsize,
}

impl Cores {
    /// Reads the cores of this machine.
    pub(crate) fn read(root: &Root) -> Self {
        // Respects the affinity of this process and the limits of its container.
        let usable = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self::limited(root, usable)
    }

    /// As [`Cores::read`], on a machine that lets us use so many CPUs at once.
    fn limited(root: &Root, usable: NonZeroUsize) -> Self {
        let allowed = allowed(root);
        let physical = NonZeroUsize::new(physical(root, &allowed)).unwrap_or(usable);
        Self {
            allowed,
            usable,
            physical: physical.min(usable),
        }
    }

    /// With how many threads each of `local_processes` computes: as `OMP_NUM_THREADS` says if it is
    /// set, or else an equal share of the physical cores.
    ///
    /// An MPI launcher may have started more processes on this machine than we will; then the cores
    /// are shared among all of them.
    ///
    /// # Errors
    /// If a variable cannot be read.
    pub(crate) fn share(
        &self,
        env: &Environment,
        local_processes: NonZeroUsize,
    ) -> Result<Threads> {
        if env.get(&OMP_NUM_THREADS)?.is_some() {
            return Ok(Threads::Inherited);
        }
        let started = mpi_local_size(env)?.map_or(local_processes, |found| found.value);
        Ok(Threads::share(self.physical, started.max(local_processes)))
    }
}

/// How many processes an MPI launcher started on this machine, and the variable that says so.
fn mpi_local_size(env: &Environment) -> Result<Option<Found<NonZeroUsize>>> {
    env.first(&[&MPI_LOCALNRANKS, &OMPI_LOCAL_SIZE, &MV2_LOCAL_SIZE])
}

/// The CPUs that the affinity of this process allows.
fn allowed(root: &Root) -> CpuList {
    let status = root.text("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(CpuList::parse).unwrap_or_default()
}

/// The number of physical cores among `cpus`; 0 if the system does not tell.
fn physical(root: &Root, cpus: &CpuList) -> usize {
    let cores: BTreeSet<_> = cpus.iter().filter_map(|cpu| siblings(root, cpu)).collect();
    match cores.len() {
        0 => from_cpuinfo(root, cpus),
        count => count,
    }
}

/// The CPUs that share a physical core with `cpu`.
pub(super) fn siblings(root: &Root, cpu: usize) -> Option<CpuList> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
    let list = root
        .text(format!("{folder}/core_cpus_list"))
        .or_else(|| root.text(format!("{folder}/thread_siblings_list")))?;
    CpuList::parse(&list).filter(|list| !list.is_empty())
}

/// Counts the pairs of package and core that `/proc/cpuinfo` names.
fn from_cpuinfo(root: &Root, cpus: &CpuList) -> usize {
    let text = root.text("/proc/cpuinfo").unwrap_or_default();
    let cores: BTreeSet<_> = text
        .split("\n\n")
        .filter_map(|block| {
            let value = |key: &str| {
                block.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    (name.trim() == key).then(|| value.trim())
                })
            };
            let cpu: usize = value("processor")?.parse().ok()?;
            let core = (value("physical id")?, value("core id")?);
            cpus.iter().any(|known| known == cpu).then_some(core)
        })
        .collect();
    cores.len()
}

#[cfg(test)]
mod tests {
    use super::{super::root::pretend::Pretend, *};

    fn count(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    /// Four CPUs on two physical cores.
    fn machine(allowed: &str) -> Pretend {
        let machine = Pretend::with(&[(
            "proc/self/status",
            &format!("Name:\ta\nCpus_allowed_list:\t{allowed}\n"),
        )]);
        for cpu in 0..4 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            machine.add(&path, if cpu % 2 == 0 { "0,2\n" } else { "1,3\n" });
        }
        machine
    }

    #[test]
    fn two_cpus_of_one_core_are_one_physical_core() {
        let all = machine("0-3");
        assert_eq!(Cores::limited(&all.root(), count(4)).physical, count(2));
        let half = machine("0,2");
        assert_eq!(Cores::limited(&half.root(), count(2)).physical, count(1));
    }

    #[test]
    fn the_limit_of_a_container_counts_too() {
        let cores = Cores::limited(&machine("0-3").root(), count(1));
        assert_eq!(cores.physical, count(1));
        assert_eq!(cores.allowed.to_string(), "0-3");
    }

    #[test]
    fn cpuinfo_stands_in_for_the_topology() {
        let block = |cpu, core| {
            format!("processor\t: {cpu}\nphysical id\t: 0\ncore id\t\t: {core}\nflags\t: x\n\n")
        };
        let machine = Pretend::with(&[
            ("proc/self/status", "Cpus_allowed_list:\t0-2\n"),
            (
                "proc/cpuinfo",
                &[block(0, 0), block(1, 0), block(2, 1), block(3, 2)].concat(),
            ),
        ]);
        assert_eq!(
            Cores::limited(&machine.root(), count(4)).physical,
            count(2),
            "core 2 is not ours"
        );
    }

    #[test]
    fn a_system_that_does_not_tell_has_as_many_cores_as_we_may_use() {
        let machine = Pretend::with(&[]);
        assert_eq!(Cores::limited(&machine.root(), count(3)).physical, count(3));
    }

    #[test]
    fn threads_are_shared_unless_the_user_said_how_many() {
        let cores = Cores {
            allowed: CpuList::default(),
            usable: count(16),
            physical: count(8),
        };
        let share = |pairs: &[(&str, &str)], processes| {
            let env = Environment::from_pairs(pairs.iter().copied());
            match cores.share(&env, count(processes)).unwrap() {
                Threads::Shared { per_process, .. } => Some(per_process.get()),
                _ => None,
            }
        };
        assert_eq!(share(&[], 1), Some(8));
        assert_eq!(share(&[], 3), Some(2));
        assert_eq!(share(&[], 100), Some(1));
        assert_eq!(share(&[("OMP_NUM_THREADS", "3")], 4), None);
        assert_eq!(
            share(&[("OMP_NUM_THREADS", "0")], 4),
            Some(2),
            "0 is not set"
        );
        let mpi = [
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("MV2_COMM_WORLD_LOCAL_SIZE", "8"),
        ];
        assert_eq!(share(&mpi, 1), Some(2), "the first one that is set");
        assert_eq!(share(&mpi, 8), Some(1), "the larger number");
    }

    #[test]
    fn this_machine_has_at_least_one_core() {
        let cores = Cores::read(&Root::machine());
        assert!(cores.physical <= cores.usable);
        assert!(cores.allowed.is_empty() || cores.usable.get() <= cores.allowed.len());
    }
}
