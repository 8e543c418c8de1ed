//! The table: every variable of the protocol, once.

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};

use super::{
    format::{DIGIT_FLAG, FLAG, INDEX, PORT, PRECISION, PYTHON_FLAG, SIZE, STEPS, TEXT, THREADS},
    variable::{Entry, Inheritance::*, Variable, Writer::*},
};
use crate::MixedPrecision;

macro_rules! variables {
    ($(
        $(#[doc = $meaning:literal])+
        $constant:ident: $type:ty = $name:literal, $format:ident, $default:expr, $writer:ident, $inheritance:ident;
    )+) => {
        $(
            $(#[doc = $meaning])+
            #[doc = ""]
            #[doc = concat!("Environment variable `", $name, "`.")]
            pub static $constant: Variable<$type> = Variable::new(
                $name,
                &$format,
                $default,
                concat!($($meaning),+).trim_ascii(),
                $writer,
                $inheritance,
            );
        )+

        /// Every variable of the protocol.
        pub static TABLE: &[&Entry] = &[$($constant.entry()),+];
    };
}

variables! {
    // Who am I: written for each process.
    /// Number of this process among all processes of the job.
    RANK: usize = "RANK", INDEX, None, Launcher, Replaced;
    /// Number of processes in the job.
    WORLD_SIZE: NonZeroUsize = "WORLD_SIZE", SIZE, None, Launcher, Replaced;
    /// Number of this process among those on its machine.
    LOCAL_RANK: usize = "LOCAL_RANK", INDEX, None, Launcher, Replaced;
    /// Number of processes on this machine.
    LOCAL_WORLD_SIZE: NonZeroUsize = "LOCAL_WORLD_SIZE", SIZE, None, Launcher, Replaced;
    /// Number of this machine among the machines of the job.
    GROUP_RANK: usize = "GROUP_RANK", INDEX, None, Launcher, Replaced;
    /// Number of machines in the job.
    GROUP_WORLD_SIZE: NonZeroUsize = "GROUP_WORLD_SIZE", SIZE, None, Launcher, Replaced;
    /// Name of the role that all processes of this launcher play.
    ROLE_NAME: String = "ROLE_NAME", TEXT, Some("default"), Launcher, Replaced;
    /// Number of this process among those of its role.
    ROLE_RANK: usize = "ROLE_RANK", INDEX, None, Launcher, Replaced;
    /// Number of processes of this role.
    ROLE_WORLD_SIZE: NonZeroUsize = "ROLE_WORLD_SIZE", SIZE, None, Launcher, Replaced;

    // Where to meet.
    /// Host name or address of the machine that runs rank 0.
    MASTER_ADDR: String = "MASTER_ADDR", TEXT, None, Launcher, Replaced;
    /// Port on which rank 0 (or the launcher, see `TORCHELASTIC_USE_AGENT_STORE`) serves the store.
    MASTER_PORT: NonZeroU16 = "MASTER_PORT", PORT, Some("29500"), Launcher, Replaced;
    /// Whether the launcher serves the store, so that rank 0 too connects as a client.
    USE_AGENT_STORE: bool = "TORCHELASTIC_USE_AGENT_STORE", PYTHON_FLAG, Some("False"), Launcher, Replaced;
    /// How often this group of processes was started again, from 0.
    RESTART_COUNT: usize = "TORCHELASTIC_RESTART_COUNT", INDEX, Some("0"), Launcher, Replaced;
    /// How often it may be started again.
    MAX_RESTARTS: usize = "TORCHELASTIC_MAX_RESTARTS", INDEX, Some("0"), Launcher, Replaced;
    /// Name of the run, equal for all launchers of one job.
    RUN_ID: String = "TORCHELASTIC_RUN_ID", TEXT, Some("none"), Launcher, Replaced;

    // The same facts as MPI launchers state them.
    /// Rank, from MPICH, Intel MPI and others with the same process manager.
    PMI_RANK: usize = "PMI_RANK", INDEX, None, Mpi, Kept;
    /// World size, from MPICH, Intel MPI and others with the same process manager.
    PMI_SIZE: NonZeroUsize = "PMI_SIZE", SIZE, None, Mpi, Kept;
    /// Local rank, from Intel MPI and MPICH.
    MPI_LOCALRANKID: usize = "MPI_LOCALRANKID", INDEX, None, Mpi, Kept;
    /// Local world size, from Intel MPI and MPICH.
    MPI_LOCALNRANKS: NonZeroUsize = "MPI_LOCALNRANKS", SIZE, None, Mpi, Kept;
    /// Rank, from Open MPI.
    OMPI_RANK: usize = "OMPI_COMM_WORLD_RANK", INDEX, None, Mpi, Kept;
    /// World size, from Open MPI.
    OMPI_SIZE: NonZeroUsize = "OMPI_COMM_WORLD_SIZE", SIZE, None, Mpi, Kept;
    /// Local rank, from Open MPI.
    OMPI_LOCAL_RANK: usize = "OMPI_COMM_WORLD_LOCAL_RANK", INDEX, None, Mpi, Kept;
    /// Local world size, from Open MPI.
    OMPI_LOCAL_SIZE: NonZeroUsize = "OMPI_COMM_WORLD_LOCAL_SIZE", SIZE, None, Mpi, Kept;
    /// Rank, from MVAPICH.
    MV2_RANK: usize = "MV2_COMM_WORLD_RANK", INDEX, None, Mpi, Kept;
    /// World size, from MVAPICH.
    MV2_SIZE: NonZeroUsize = "MV2_COMM_WORLD_SIZE", SIZE, None, Mpi, Kept;
    /// Local rank, from MVAPICH.
    MV2_LOCAL_RANK: usize = "MV2_COMM_WORLD_LOCAL_RANK", INDEX, None, Mpi, Kept;
    /// Local world size, from MVAPICH.
    MV2_LOCAL_SIZE: NonZeroUsize = "MV2_COMM_WORLD_LOCAL_SIZE", SIZE, None, Mpi, Kept;

    // How to compute.
    /// Whether to stay on the CPU although there is an accelerator.
    USE_CPU: bool = "ACCELERATE_USE_CPU", PYTHON_FLAG, Some("False"), Launcher, Kept;
    /// In which lower precision to compute.
    MIXED_PRECISION: MixedPrecision = "ACCELERATE_MIXED_PRECISION", PRECISION, Some("no"), Launcher, Replaced;
    /// Over how many steps gradients are added up before the optimizer acts.
    GRADIENT_ACCUMULATION_STEPS: NonZeroU32 = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", STEPS, Some("1"), Launcher, Kept;
    /// Whether collectives first check that all processes call the same one with fitting shapes.
    DEBUG_MODE: bool = "ACCELERATE_DEBUG_MODE", FLAG, Some("false"), Launcher, Kept;
    /// Whether each process is pinned to the cores next to its device.
    CPU_AFFINITY: bool = "ACCELERATE_CPU_AFFINITY", DIGIT_FLAG, Some("0"), Launcher, Kept;
    /// Device that this process must use, such as `cpu` or `cuda:1`.
    TORCH_DEVICE: String = "ACCELERATE_TORCH_DEVICE", TEXT, None, User, Kept;
    /// Lowest level of log messages that are shown, such as `info`.
    LOG_LEVEL: String = "ACCELERATE_LOG_LEVEL", TEXT, None, User, Kept;
    /// Number of threads with which one process computes.
    OMP_NUM_THREADS: NonZeroUsize = "OMP_NUM_THREADS", THREADS, None, Launcher, Kept;
    /// Whether this process was forked by a launcher that owns the process group.
    FORK_LAUNCHED: bool = "FORK_LAUNCHED", DIGIT_FLAG, Some("0"), Launcher, Kept;
    /// NVIDIA devices that may be used, comma-separated.
    CUDA_VISIBLE_DEVICES: String = "CUDA_VISIBLE_DEVICES", TEXT, None, User, Kept;

    // What the launcher itself looks at.
    /// Python interpreter for programs written in Python.
    PYTHON_EXEC: String = "PYTHON_EXEC", TEXT, None, User, Kept;
    /// Folder of the active Python environment.
    VIRTUAL_ENV: String = "VIRTUAL_ENV", TEXT, None, User, Kept;
}

/// Where the rank is looked for, in this order.
pub static RANK_SOURCES: [&Variable<usize>; 4] = [&RANK, &PMI_RANK, &OMPI_RANK, &MV2_RANK];

/// Where the world size is looked for, in this order.
pub static WORLD_SIZE_SOURCES: [&Variable<NonZeroUsize>; 4] =
    [&WORLD_SIZE, &PMI_SIZE, &OMPI_SIZE, &MV2_SIZE];

/// Where the local rank is looked for, in this order.
pub static LOCAL_RANK_SOURCES: [&Variable<usize>; 4] = [
    &LOCAL_RANK,
    &MPI_LOCALRANKID,
    &OMPI_LOCAL_RANK,
    &MV2_LOCAL_RANK,
];

/// Where the local world size is looked for, in this order.
pub static LOCAL_WORLD_SIZE_SOURCES: [&Variable<NonZeroUsize>; 4] = [
    &LOCAL_WORLD_SIZE,
    &MPI_LOCALNRANKS,
    &OMPI_LOCAL_SIZE,
    &MV2_LOCAL_SIZE,
];

/// The table as a Markdown page, one row per variable.
pub fn reference_page() -> String {
    let head = "| variable | type | default | meaning | written by | value of the launcher |\n\
                | --- | --- | --- | --- | --- | --- |\n";
    let rows = TABLE.iter().map(|entry| {
        let Entry {
            name,
            kind,
            meaning,
            writer,
            inheritance,
            ..
        } = entry;
        let default = entry
            .default
            .map(|text| format!("`{text}`"))
            .unwrap_or_default();
        format!("| `{name}` | {kind} | {default} | {meaning} | {writer:?} | {inheritance:?} |\n")
    });
    std::iter::once(head.to_owned()).chain(rows).collect()
}
