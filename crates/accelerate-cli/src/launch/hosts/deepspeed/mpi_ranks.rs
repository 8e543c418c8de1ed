//! Commands of an MPI that starts the ranks itself.

use std::ffi::OsString;

use accelerate_plan::env::{MASTER_ADDR, MASTER_PORT};

use super::{Job, MultinodeLauncher};
use crate::launch::hosts::{Result, words};

/// Gives a rank of MPICH the names that programs for PyTorch look for, then becomes the program.
const RANK_OF_MPICH: &str = "\
export RANK=\"${PMIX_RANK:-${PMI_RANK:?is not set by mpirun}}\" \
LOCAL_RANK=\"${PALS_LOCAL_RANKID:-${MPI_LOCALRANKID:?is not set by mpirun}}\" && exec \"$@\"";

/// What MVAPICH needs to carry tensors, unless the user says otherwise.
const MVAPICH_TUNING: [(&str, &str); 7] = [
    ("MV2_SMP_USE_CMA", "0"),
    ("MV2_DEBUG_SHOW_BACKTRACE", "1"),
    ("MV2_USE_CUDA", "1"),
    ("MV2_SUPPORT_DL", "1"),
    ("MV2_ENABLE_AFFINITY", "0"),
    ("MV2_INTER_ALLGATHER_TUNING", "5"),
    ("MV2_CUDA_USE_NAIVE", "0"),
];

/// Open MPI: hosts may have different numbers of slots.
///
/// A choice among the hosts of the file is given by name instead. The network `eth0` is named only
/// where there is one; the traffic of the processes does not depend on it.
pub(super) fn open_mpi(job: &Job<'_>, has_eth0: bool) -> Result<Vec<OsString>> {
    let pool = &job.hosts.pool;
    pool.check_first_slots(MultinodeLauncher::OpenMpi)?;
    let mut command = numbers(&[("-n", pool.total())]);
    match (job.request.hostfile, job.hosts.is_whole_file) {
        (Some(path), true) => command.extend(["-hostfile".into(), path.into()]),
        _ => {
            let hosts = pool
                .hosts()
                .map(|(host, slots)| format!("{host}:{}", slots.len()));
            let hosts = hosts.collect::<Vec<_>>().join(",");
            command.extend(["--host".into(), hosts.into()]);
        }
    }
    command.extend(texts(&["--mca", "btl", "^openib"]));
    if has_eth0 {
        command.extend(texts(&["--mca", "btl_tcp_if_include", "eth0"]));
    }
    let transport = Some(("UCX_TLS", "tcp")).filter(|(name, _)| !job.exports.contains(name));
    for (name, value) in job.exports.iter().chain(transport) {
        command.extend(["-x".into(), format!("{name}={value}").into()]);
    }
    command.extend(words(job.request.program));
    Ok(command)
}

/// MPICH and Intel MPI: equally many slots on each host.
pub(super) fn mpich(job: &Job<'_>) -> Result<Vec<OsString>> {
    let pool = &job.hosts.pool;
    pool.check_first_slots(MultinodeLauncher::Mpich)?;
    let (total, per_host) = (pool.total(), pool.per_host(MultinodeLauncher::Mpich)?);
    let mut command = numbers(&[("-n", total), ("-ppn", per_host)]);
    let is_address = |name| name == MASTER_ADDR.name() || name == MASTER_PORT.name();
    for (name, value) in job.exports.iter().filter(|(name, _)| !is_address(*name)) {
        command.extend(["-genv".into(), format!("{name}={value}").into()]);
    }
    if let Some(master) = &job.master {
        command.extend(texts(&["-genv", MASTER_ADDR.name(), &master.addr]));
        let port = master.port.to_string();
        command.extend(texts(&["-genv", MASTER_PORT.name(), &port]));
    }
    for (name, number) in [
        ("WORLD_SIZE", total),
        ("LOCAL_SIZE", per_host),
        ("LOCAL_WORLD_SIZE", per_host),
    ] {
        command.extend(texts(&["-genv", name, &number.to_string()]));
    }
    command.extend(texts(&["-hosts", &pool.names()]));
    command.extend(texts(&["sh", "-c", RANK_OF_MPICH, "rank"]));
    command.extend(words(job.request.program));
    Ok(command)
}

/// MVAPICH: equally many slots on each host. The hosts are given by name, so that no file in a
/// folder for everyone is needed.
pub(super) fn mvapich(job: &Job<'_>) -> Result<Vec<OsString>> {
    let pool = &job.hosts.pool;
    pool.check_first_slots(MultinodeLauncher::Mvapich)?;
    let per_host = pool.per_host(MultinodeLauncher::Mvapich)?;
    let mut command = numbers(&[("-np", pool.total()), ("-ppn", per_host)]);
    command.extend(texts(&["-hosts", &pool.names()]));
    let tuning = MVAPICH_TUNING
        .into_iter()
        .filter(|(name, _)| !job.exports.contains(name));
    for (name, value) in job.exports.iter().chain(tuning) {
        command.extend(["-env".into(), format!("{name}={value}").into()]);
    }
    command.extend(words(job.request.program));
    Ok(command)
}

fn numbers(flags: &[(&str, usize)]) -> Vec<OsString> {
    let both = flags
        .iter()
        .flat_map(|(flag, number)| [(*flag).into(), number.to_string().into()]);
    both.collect()
}

fn texts(words: &[&str]) -> impl Iterator<Item = OsString> {
    words.iter().map(OsString::from)
}
