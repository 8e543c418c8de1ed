//! The table: every variable of the protocol, once.

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};

use super::{
    format::{
        COUNT, DIGIT_FLAG, FLAG, Format, INDEX, NUMBER, NUMBER_OR_AUTO, PORT, PORT_OR_FREE,
        PRECISION, PYTHON_FLAG, SIZE, STAGE, STEPS_OR_AUTO, TEXT, THREADS, WHOLE,
    },
    variable::{Entry, Inheritance::*, Variable, Writer::*},
};
use crate::{
    MixedPrecision,
    settings::{
        AmaxComputeAlgo, AutoWrapPolicy, BackwardPrefetch, CpBackend, CpCommStrategy,
        DynamoBackend, DynamoMode, Fp8Backend, Fp8Format, Fp8OptLevel, FsdpVersion, OffloadDevice,
        RecomputeGranularity, RecomputeMethod, ReshardAfterForward, ShardingStrategy, SpBackend,
        StateDictType,
    },
};

/// Formats of the values that settings choose from.
mod choices {
    use super::*;

    macro_rules! formats {
        ($($name:ident: $type:ty;)+) => {
            $(pub(super) static $name: Format<$type> = <$type>::FORMAT;)+
        };
    }

    formats! {
        ALGORITHM: AmaxComputeAlgo;
        BACKWARD_PREFETCH: BackwardPrefetch;
        CP_BACKEND: CpBackend;
        CP_STRATEGY: CpCommStrategy;
        DEVICE: OffloadDevice;
        DYNAMO: DynamoBackend;
        DYNAMO_MODES: DynamoMode;
        FP8: Fp8Backend;
        FP8_FORMATS: Fp8Format;
        GRANULARITY: RecomputeGranularity;
        LEVEL: Fp8OptLevel;
        METHOD: RecomputeMethod;
        SP_BACKEND: SpBackend;
        RESHARD: ReshardAfterForward;
        STATE_DICT: StateDictType;
        STRATEGY: ShardingStrategy;
        VERSION: FsdpVersion;
        WRAP: AutoWrapPolicy;
    }
}
use choices::*;

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

    /// The call of an in-process launcher that this process was started for.
    LAUNCH_CALL: String = "ACCELERATE_LAUNCH_CALL", TEXT, None, Launcher, Kept;

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

    // The same facts, from process managers that are no MPI implementation of their own.
    /// Local rank, from process managers that speak PMI.
    PMI_LOCAL_RANK: usize = "PMI_LOCAL_RANK", INDEX, None, Mpi, Kept;
    /// Local world size, from process managers that speak PMI.
    PMI_LOCAL_SIZE: NonZeroUsize = "PMI_LOCAL_SIZE", SIZE, None, Mpi, Kept;
    /// Rank, from process managers that speak PMIx.
    PMIX_RANK: usize = "PMIX_RANK", INDEX, None, Mpi, Kept;
    /// Rank, from PALS.
    PALS_RANK: usize = "PALS_RANKID", INDEX, None, Cluster, Kept;
    /// Local rank, from PALS.
    PALS_LOCAL_RANK: usize = "PALS_LOCAL_RANKID", INDEX, None, Cluster, Kept;
    /// Local world size, from PALS.
    PALS_LOCAL_SIZE: NonZeroUsize = "PALS_LOCAL_SIZE", SIZE, None, Cluster, Kept;
    /// Number of this machine, from PALS.
    PALS_NODE_RANK: usize = "PALS_NODEID", INDEX, None, Cluster, Kept;

    // What SLURM says about a job and about the step in which a process runs.
    /// Name of the SLURM job.
    SLURM_JOB_ID: String = "SLURM_JOB_ID", TEXT, None, Cluster, Kept;
    /// Name of the SLURM step; a batch script and an interactive shell run in none that counts.
    SLURM_STEP_ID: String = "SLURM_STEP_ID", TEXT, None, Cluster, Kept;
    /// Rank among the tasks of the SLURM step.
    SLURM_PROCID: usize = "SLURM_PROCID", INDEX, None, Cluster, Kept;
    /// Local rank among the tasks of the SLURM step.
    SLURM_LOCALID: usize = "SLURM_LOCALID", INDEX, None, Cluster, Kept;
    /// Number of this machine among those of the SLURM step.
    SLURM_NODEID: usize = "SLURM_NODEID", INDEX, None, Cluster, Kept;
    /// Tasks of the SLURM step.
    SLURM_STEP_NUM_TASKS: NonZeroUsize = "SLURM_STEP_NUM_TASKS", SIZE, None, Cluster, Kept;
    /// Tasks of the SLURM step, or of the job outside of one.
    SLURM_NTASKS: NonZeroUsize = "SLURM_NTASKS", SIZE, None, Cluster, Kept;
    /// Machines of the SLURM step.
    SLURM_STEP_NUM_NODES: NonZeroUsize = "SLURM_STEP_NUM_NODES", SIZE, None, Cluster, Kept;
    /// Machines of the SLURM step, or of the job outside of one.
    SLURM_NNODES: NonZeroUsize = "SLURM_NNODES", SIZE, None, Cluster, Kept;
    /// Machines of the SLURM job.
    SLURM_JOB_NUM_NODES: NonZeroUsize = "SLURM_JOB_NUM_NODES", SIZE, None, Cluster, Kept;
    /// Tasks on each machine of the SLURM step, such as `4(x2),3`.
    SLURM_STEP_TASKS_PER_NODE: String = "SLURM_STEP_TASKS_PER_NODE", TEXT, None, Cluster, Kept;
    /// Tasks on each machine of the SLURM step, or of the job outside of one.
    SLURM_TASKS_PER_NODE: String = "SLURM_TASKS_PER_NODE", TEXT, None, Cluster, Kept;
    /// Names of the machines of the SLURM step, such as `n[01-03,7],gpu2`.
    SLURM_STEP_NODELIST: String = "SLURM_STEP_NODELIST", TEXT, None, Cluster, Kept;
    /// Names of the machines of the SLURM step, or of the job outside of one.
    SLURM_NODELIST: String = "SLURM_NODELIST", TEXT, None, Cluster, Kept;
    /// Names of the machines of the SLURM job.
    SLURM_JOB_NODELIST: String = "SLURM_JOB_NODELIST", TEXT, None, Cluster, Kept;

    // How to compute.
    /// Whether to stay on the CPU although there is an accelerator.
    USE_CPU: bool = "ACCELERATE_USE_CPU", PYTHON_FLAG, Some("False"), Launcher, Kept;
    /// In which lower precision to compute.
    MIXED_PRECISION: MixedPrecision = "ACCELERATE_MIXED_PRECISION", PRECISION, Some("no"), Launcher, Replaced;
    /// Over how many steps gradients are added up before the optimizer acts.
    GRADIENT_ACCUMULATION_STEPS: NonZeroU32 = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", STEPS_OR_AUTO, Some("1"), Launcher, Kept;
    /// Whether collectives first check that all processes call the same one with fitting shapes.
    DEBUG_MODE: bool = "ACCELERATE_DEBUG_MODE", FLAG, Some("false"), Launcher, Kept;
    /// Whether each process is pinned to the cores next to its device.
    CPU_AFFINITY: bool = "ACCELERATE_CPU_AFFINITY", DIGIT_FLAG, Some("0"), Launcher, Kept;
    /// Device that this process must use, such as `cpu` or `cuda:1`.
    TORCH_DEVICE: String = "ACCELERATE_TORCH_DEVICE", TEXT, None, User, Kept;
    /// Whether a model that is built without memory has no buffers in memory either.
    INIT_INCLUDE_BUFFERS: bool = "ACCELERATE_INIT_INCLUDE_BUFFERS", FLAG, Some("false"), User, Kept;
    /// Whether processes may train together what a device map has spread over several places.
    BYPASS_DEVICE_MAP: bool = "ACCELERATE_BYPASS_DEVICE_MAP", FLAG, Some("false"), User, Kept;
    /// Lowest level of log messages that are shown, such as `info`.
    LOG_LEVEL: String = "ACCELERATE_LOG_LEVEL", TEXT, None, User, Kept;
    /// Number of threads with which one process computes.
    OMP_NUM_THREADS: NonZeroUsize = "OMP_NUM_THREADS", THREADS, None, Launcher, Kept;
    /// From which size on the C library takes a block from the system by itself, in bytes.
    MALLOC_MMAP_THRESHOLD: String = "MALLOC_MMAP_THRESHOLD_", TEXT, None, User, Kept;
    /// How much freed memory the C library keeps, in bytes.
    MALLOC_TRIM_THRESHOLD: String = "MALLOC_TRIM_THRESHOLD_", TEXT, None, User, Kept;
    /// Whether this process was forked by a launcher that owns the process group.
    FORK_LAUNCHED: bool = "FORK_LAUNCHED", DIGIT_FLAG, Some("0"), Launcher, Kept;
    /// NVIDIA devices that may be used, comma-separated.
    CUDA_VISIBLE_DEVICES: String = "CUDA_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// AMD devices that programs may use, comma-separated; counted among `ROCR_VISIBLE_DEVICES`.
    HIP_VISIBLE_DEVICES: String = "HIP_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// AMD devices that the driver shows to programs, comma-separated.
    ROCR_VISIBLE_DEVICES: String = "ROCR_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// Intel devices that may be used, comma-separated.
    ZE_AFFINITY_MASK: String = "ZE_AFFINITY_MASK", TEXT, None, User, Kept;
    /// Cambricon devices that may be used, comma-separated.
    MLU_VISIBLE_DEVICES: String = "MLU_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// Tecorigin devices that may be used, comma-separated.
    SDAA_VISIBLE_DEVICES: String = "SDAA_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// Moore Threads devices that may be used, comma-separated.
    MUSA_VISIBLE_DEVICES: String = "MUSA_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// Ascend devices that may be used, comma-separated.
    ASCEND_RT_VISIBLE_DEVICES: String = "ASCEND_RT_VISIBLE_DEVICES", TEXT, None, User, Kept;
    /// Gaudi modules that may be used, comma-separated.
    HABANA_VISIBLE_MODULES: String = "HABANA_VISIBLE_MODULES", TEXT, None, User, Kept;
    /// Neuron cores that may be used: numbers and ranges, comma-separated.
    NEURON_RT_VISIBLE_CORES: String = "NEURON_RT_VISIBLE_CORES", TEXT, None, User, Kept;
    /// Whether NCCL must not copy between devices directly.
    NCCL_P2P_DISABLE: String = "NCCL_P2P_DISABLE", TEXT, None, Launcher, Kept;
    /// Whether NCCL must not use InfiniBand.
    NCCL_IB_DISABLE: String = "NCCL_IB_DISABLE", TEXT, None, Launcher, Kept;

    // Comparing a training with one that was interrupted (`accelerate verify-resume`).
    /// Folder into which each process writes what it did at each step of an optimizer.
    RECORD_STEPS: String = "ACCELERATE_RECORD_STEPS", TEXT, None, Launcher, Kept;
    /// Step of an optimizer behind which a program that records its steps leaves, as if it were asked to.
    LEAVE_AT_STEP: NonZeroUsize = "ACCELERATE_LEAVE_AT_STEP", COUNT, None, Launcher, Kept;

    // What the launcher itself looks at.
    /// Python interpreter for programs written in Python.
    PYTHON_EXEC: String = "PYTHON_EXEC", TEXT, None, User, Kept;
    /// The self-test program, wherever it is.
    SELFTEST: String = "ACCELERATE_SELFTEST", TEXT, None, User, Kept;
    /// Folder of the active Python environment.
    VIRTUAL_ENV: String = "VIRTUAL_ENV", TEXT, None, User, Kept;
    /// Kind of the terminal; the kind `dumb` has neither colours nor a cursor that moves.
    TERM: String = "TERM", TEXT, None, User, Kept;
    /// Any text but the empty one leaves colours out.
    NO_COLOR: String = "NO_COLOR", TEXT, None, User, Kept;

    // What else a job may be given by variable rather than by flag or file.
    /// Config file to use.
    CONFIG_FILE: String = "ACCELERATE_CONFIG_FILE", TEXT, None, User, Kept;
    /// Processes of the job, on all machines.
    NUM_PROCESSES: NonZeroUsize = "ACCELERATE_NUM_PROCESSES", COUNT, None, User, Kept;
    /// Machines of the job.
    NUM_MACHINES: NonZeroUsize = "ACCELERATE_NUM_MACHINES", COUNT, None, User, Kept;
    /// Number of this machine, from 0.
    MACHINE_RANK: usize = "ACCELERATE_MACHINE_RANK", INDEX, None, User, Kept;
    /// Address of the machine that runs rank 0.
    MAIN_PROCESS_IP: String = "ACCELERATE_MAIN_PROCESS_IP", TEXT, None, User, Kept;
    /// Port at which the processes meet; 0 for a free one.
    MAIN_PROCESS_PORT: u16 = "ACCELERATE_MAIN_PROCESS_PORT", PORT_OR_FREE, None, User, Kept;
    /// How often a failed job is started again.
    MAX_RESTARTS_ALLOWED: u64 = "ACCELERATE_MAX_RESTARTS", WHOLE, None, User, Kept;

    // Sharding in the words of FSDP.
    /// Whether the job is sharded in the words of FSDP.
    USE_FSDP: bool = "ACCELERATE_USE_FSDP", FLAG, None, Launcher, Kept;
    /// Which version of the words.
    FSDP_VERSION: FsdpVersion = "FSDP_VERSION", VERSION, None, Launcher, Kept;
    /// What is sharded over which ranks.
    FSDP_SHARDING_STRATEGY: ShardingStrategy = "FSDP_SHARDING_STRATEGY", STRATEGY, None, Launcher, Kept;
    /// Whether parameters are dropped after the forward pass (version 2), or the strategy (version 1).
    FSDP_RESHARD_AFTER_FORWARD: ReshardAfterForward = "FSDP_RESHARD_AFTER_FORWARD", RESHARD, None, Launcher, Kept;
    /// Whether parameters and gradients stay in CPU memory.
    FSDP_OFFLOAD_PARAMS: bool = "FSDP_OFFLOAD_PARAMS", FLAG, None, Launcher, Kept;
    /// Parameters from which a module becomes a unit.
    FSDP_MIN_NUM_PARAMS: u64 = "FSDP_MIN_NUM_PARAMS", WHOLE, None, Launcher, Kept;
    /// Which modules become units.
    FSDP_AUTO_WRAP_POLICY: AutoWrapPolicy = "FSDP_AUTO_WRAP_POLICY", WRAP, None, Launcher, Kept;
    /// Class names of the modules that become units, comma-separated.
    FSDP_TRANSFORMER_CLS_TO_WRAP: String = "FSDP_TRANSFORMER_CLS_TO_WRAP", TEXT, None, Launcher, Kept;
    /// When the next unit is gathered in the backward pass.
    FSDP_BACKWARD_PREFETCH: BackwardPrefetch = "FSDP_BACKWARD_PREFETCH", BACKWARD_PREFETCH, None, Launcher, Kept;
    /// How the model is saved.
    FSDP_STATE_DICT_TYPE: StateDictType = "FSDP_STATE_DICT_TYPE", STATE_DICT, None, Launcher, Kept;
    /// Whether the next unit is gathered early in the forward pass.
    FSDP_FORWARD_PREFETCH: bool = "FSDP_FORWARD_PREFETCH", FLAG, None, Launcher, Kept;
    /// Whether modules show their own parameters.
    FSDP_USE_ORIG_PARAMS: bool = "FSDP_USE_ORIG_PARAMS", FLAG, None, Launcher, Kept;
    /// Whether only the first process of a machine loads the weights.
    FSDP_CPU_RAM_EFFICIENT_LOADING: bool = "FSDP_CPU_RAM_EFFICIENT_LOADING", FLAG, None, Launcher, Kept;
    /// Whether rank 0 sends its weights to the others at the start.
    FSDP_SYNC_MODULE_STATES: bool = "FSDP_SYNC_MODULE_STATES", FLAG, None, Launcher, Kept;
    /// Whether units compute their activations again in the backward pass.
    FSDP_ACTIVATION_CHECKPOINTING: bool = "FSDP_ACTIVATION_CHECKPOINTING", FLAG, None, Launcher, Kept;
    /// Whether what is kept for the backward pass waits in CPU memory.
    FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD: bool = "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", FLAG, None, Launcher, Kept;
    /// Pattern of the names of modules that are not sharded.
    FSDP_IGNORED_MODULES: String = "FSDP_IGNORED_MODULES", TEXT, None, Launcher, Kept;

    // Sharding in the words of DeepSpeed.
    /// Whether the job is sharded in the words of DeepSpeed.
    USE_DEEPSPEED: bool = "ACCELERATE_USE_DEEPSPEED", FLAG, None, Launcher, Kept;
    /// Keys of the config file that were given for DeepSpeed, comma-separated.
    CONFIG_DS_FIELDS: String = "ACCELERATE_CONFIG_DS_FIELDS", TEXT, None, Launcher, Kept;
    /// What is sharded: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too.
    DEEPSPEED_ZERO_STAGE: u64 = "ACCELERATE_DEEPSPEED_ZERO_STAGE", STAGE, None, Launcher, Kept;
    /// Largest norm of the gradients.
    GRADIENT_CLIPPING: f64 = "ACCELERATE_GRADIENT_CLIPPING", NUMBER_OR_AUTO, None, Launcher, Kept;
    /// Where the optimizer state is kept.
    DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE: OffloadDevice = "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", DEVICE, None, Launcher, Kept;
    /// Where parameters are kept.
    DEEPSPEED_OFFLOAD_PARAM_DEVICE: OffloadDevice = "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", DEVICE, None, Launcher, Kept;
    /// Folder for optimizer state on disk.
    DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH: String = "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", TEXT, None, Launcher, Kept;
    /// Folder for parameters on disk.
    DEEPSPEED_OFFLOAD_PARAM_NVME_PATH: String = "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", TEXT, None, Launcher, Kept;
    /// Whether a model is built in shards from the start.
    DEEPSPEED_ZERO3_INIT: bool = "ACCELERATE_DEEPSPEED_ZERO3_INIT", FLAG, None, Launcher, Kept;
    /// Whether a whole 16-bit model is gathered for saving.
    DEEPSPEED_ZERO3_SAVE_16BIT_MODEL: bool = "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", FLAG, None, Launcher, Kept;
    /// DeepSpeed's own config file.
    DEEPSPEED_CONFIG_FILE: String = "ACCELERATE_DEEPSPEED_CONFIG_FILE", TEXT, None, Launcher, Kept;
    /// Class names of mixture-of-experts layers, comma-separated.
    DEEPSPEED_MOE_LAYER_CLS_NAMES: String = "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", TEXT, None, Launcher, Kept;

    // Sharding in the words of Megatron-LM.
    /// Whether the job is sharded in the words of Megatron-LM.
    USE_MEGATRON_LM: bool = "ACCELERATE_USE_MEGATRON_LM", FLAG, None, Launcher, Kept;
    /// Ranks over which layers are cut.
    MEGATRON_LM_TP_DEGREE: NonZeroUsize = "MEGATRON_LM_TP_DEGREE", COUNT, None, Launcher, Kept;
    /// Stages of the pipeline.
    MEGATRON_LM_PP_DEGREE: NonZeroUsize = "MEGATRON_LM_PP_DEGREE", COUNT, None, Launcher, Kept;
    /// Pieces of a batch that pass through the pipeline.
    MEGATRON_LM_NUM_MICRO_BATCHES: NonZeroUsize = "MEGATRON_LM_NUM_MICRO_BATCHES", COUNT, None, Launcher, Kept;
    /// Whether sequences are cut where layers are not.
    MEGATRON_LM_SEQUENCE_PARALLELISM: bool = "MEGATRON_LM_SEQUENCE_PARALLELISM", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether parts of attention are computed again in the backward pass.
    MEGATRON_LM_RECOMPUTE_ACTIVATIONS: bool = "MEGATRON_LM_RECOMPUTE_ACTIVATIONS", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether optimizer state is sharded over data-parallel ranks.
    MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER: bool = "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", PYTHON_FLAG, None, Launcher, Kept;
    /// Largest norm of the gradients.
    MEGATRON_LM_GRADIENT_CLIPPING: f64 = "MEGATRON_LM_GRADIENT_CLIPPING", NUMBER, None, Launcher, Kept;
    /// Whether its own full sharding is used.
    MEGATRON_LM_USE_CUSTOM_FSDP: bool = "MEGATRON_LM_USE_CUSTOM_FSDP", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether optimizer state is left out when loading.
    MEGATRON_LM_NO_LOAD_OPTIM: bool = "MEGATRON_LM_NO_LOAD_OPTIM", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether ends of documents do not count in the loss.
    MEGATRON_LM_EOD_MASK_LOSS: bool = "MEGATRON_LM_EOD_MASK_LOSS", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether copies for an optimizer on the CPU run beside its steps.
    MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D: bool = "MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether optimizer state is left out when saving.
    MEGATRON_LM_NO_SAVE_OPTIM: bool = "MEGATRON_LM_NO_SAVE_OPTIM", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether the optimizer runs on the CPU.
    MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD: bool = "MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether the optimizer keeps its state in lower precision.
    MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER: bool = "MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER", PYTHON_FLAG, None, Launcher, Kept;
    /// Layers of the last stage.
    MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS: NonZeroUsize = "MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS", COUNT, None, Launcher, Kept;
    /// Layers computed again in each stage.
    MEGATRON_LM_RECOMPUTE_NUM_LAYERS: NonZeroUsize = "MEGATRON_LM_RECOMPUTE_NUM_LAYERS", COUNT, None, Launcher, Kept;
    /// Ranks over which experts are spread.
    MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE: NonZeroUsize = "MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE", COUNT, None, Launcher, Kept;
    /// Ranks over which sequences are cut.
    MEGATRON_LM_CONTEXT_PARALLEL_SIZE: NonZeroUsize = "MEGATRON_LM_CONTEXT_PARALLEL_SIZE", COUNT, None, Launcher, Kept;
    /// Ranks over which each expert is cut.
    MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE: NonZeroUsize = "MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE", COUNT, None, Launcher, Kept;
    /// What is computed again.
    MEGATRON_LM_RECOMPUTE_GRANULARITY: RecomputeGranularity = "MEGATRON_LM_RECOMPUTE_GRANULARITY", GRANULARITY, None, Launcher, Kept;
    /// Which layers are computed again.
    MEGATRON_LM_RECOMPUTE_METHOD: RecomputeMethod = "MEGATRON_LM_RECOMPUTE_METHOD", METHOD, None, Launcher, Kept;
    /// Which attention kernel is used.
    MEGATRON_LM_ATTENTION_BACKEND: String = "MEGATRON_LM_ATTENTION_BACKEND", TEXT, None, Launcher, Kept;
    /// Whether the softmax of attention is computed in 32 bits.
    MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32: bool = "MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether the loss is divided by the number of tokens.
    MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS: bool = "MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether positions are rotations.
    MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS: bool = "MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS", PYTHON_FLAG, None, Launcher, Kept;
    /// Dropout in attention.
    MEGATRON_LM_ATTENTION_DROPOUT: f64 = "MEGATRON_LM_ATTENTION_DROPOUT", NUMBER, None, Launcher, Kept;
    /// Dropout of hidden states.
    MEGATRON_LM_HIDDEN_DROPOUT: f64 = "MEGATRON_LM_HIDDEN_DROPOUT", NUMBER, None, Launcher, Kept;

    // The mesh.
    /// Whether the mesh is given.
    USE_PARALLELISM_CONFIG: bool = "ACCELERATE_USE_PARALLELISM_CONFIG", FLAG, None, Launcher, Kept;
    /// Copies of the model.
    PARALLELISM_DP_REPLICATE_SIZE: NonZeroUsize = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", COUNT, None, Launcher, Kept;
    /// Ranks over which a copy is sharded.
    PARALLELISM_DP_SHARD_SIZE: NonZeroUsize = "PARALLELISM_CONFIG_DP_SHARD_SIZE", COUNT, None, Launcher, Kept;
    /// Ranks over which layers are cut.
    PARALLELISM_TP_SIZE: NonZeroUsize = "PARALLELISM_CONFIG_TP_SIZE", COUNT, None, Launcher, Kept;
    /// Ranks over which sequences are cut.
    PARALLELISM_CP_SIZE: NonZeroUsize = "PARALLELISM_CONFIG_CP_SIZE", COUNT, None, Launcher, Kept;
    /// Whose context parallelism.
    PARALLELISM_CP_BACKEND: CpBackend = "PARALLELISM_CONFIG_CP_BACKEND", CP_BACKEND, None, Launcher, Kept;
    /// How context-parallel ranks exchange keys and values.
    PARALLELISM_CP_COMM_STRATEGY: CpCommStrategy = "PARALLELISM_CONFIG_CP_COMM_STRATEGY", CP_STRATEGY, None, Launcher, Kept;
    /// Ranks over which sequences are cut by heads.
    PARALLELISM_SP_SIZE: NonZeroUsize = "PARALLELISM_CONFIG_SP_SIZE", COUNT, None, Launcher, Kept;
    /// Whose sequence parallelism.
    PARALLELISM_SP_BACKEND: SpBackend = "PARALLELISM_CONFIG_SP_BACKEND", SP_BACKEND, None, Launcher, Kept;
    /// Length of the sequences.
    PARALLELISM_SP_SEQ_LENGTH: NonZeroUsize = "PARALLELISM_CONFIG_SP_SEQ_LENGTH", SIZE, None, Launcher, Kept;
    /// Whether sequences differ in length.
    PARALLELISM_SP_SEQ_LENGTH_IS_VARIABLE: bool = "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", PYTHON_FLAG, None, Launcher, Kept;
    /// Which attention is used on parts of the heads.
    PARALLELISM_SP_ATTN_IMPLEMENTATION: String = "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION", TEXT, None, Launcher, Kept;

    // FP8.
    /// Which package computes.
    FP8_BACKEND: Fp8Backend = "ACCELERATE_FP8_BACKEND", FP8, None, Launcher, Kept;
    /// Whether evaluation computes in FP8 too.
    FP8_USE_AUTOCAST_DURING_EVAL: bool = "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", PYTHON_FLAG, None, Launcher, Kept;
    /// Bits of headroom of the scale.
    FP8_MARGIN: u64 = "ACCELERATE_FP8_MARGIN", WHOLE, None, Launcher, Kept;
    /// Steps between two scales.
    FP8_INTERVAL: u64 = "ACCELERATE_FP8_INTERVAL", WHOLE, None, Launcher, Kept;
    /// Which 8-bit float is used where.
    FP8_FORMAT: Fp8Format = "ACCELERATE_FP8_FORMAT", FP8_FORMATS, None, Launcher, Kept;
    /// Maxima that are remembered.
    FP8_AMAX_HISTORY_LEN: u64 = "ACCELERATE_FP8_AMAX_HISTORY_LEN", WHOLE, None, Launcher, Kept;
    /// How the scale follows from them.
    FP8_AMAX_COMPUTE_ALGO: AmaxComputeAlgo = "ACCELERATE_FP8_AMAX_COMPUTE_ALGO", ALGORITHM, None, Launcher, Kept;
    /// How much MS-AMP keeps in FP8.
    FP8_OPT_LEVEL: Fp8OptLevel = "ACCELERATE_FP8_OPT_LEVEL", LEVEL, None, Launcher, Kept;
    /// Whether shards are gathered in FP8.
    FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER: bool = "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", DIGIT_FLAG, None, Launcher, Kept;
    /// Whether matrices are padded to sizes that the hardware takes.
    FP8_PAD_INNER_DIM: bool = "ACCELERATE_FP8_PAD_INNER_DIM", DIGIT_FLAG, None, Launcher, Kept;
    /// Whether the forward product stays in higher precision.
    FP8_OVERRIDE_FPROP: bool = "ACCELERATE_FP8_OVERRIDE_FPROP", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether the gradient of the input stays in higher precision.
    FP8_OVERRIDE_DGRAD: bool = "ACCELERATE_FP8_OVERRIDE_DGRAD", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether the gradient of the weight stays in higher precision.
    FP8_OVERRIDE_WGRAD: bool = "ACCELERATE_FP8_OVERRIDE_WGRAD", PYTHON_FLAG, None, Launcher, Kept;

    // Compilation.
    /// Which compiler turns the model into kernels.
    DYNAMO_BACKEND: DynamoBackend = "ACCELERATE_DYNAMO_BACKEND", DYNAMO, None, Launcher, Kept;
    /// What it optimises for.
    DYNAMO_MODE: DynamoMode = "ACCELERATE_DYNAMO_MODE", DYNAMO_MODES, None, Launcher, Kept;
    /// Whether the model must be one graph.
    DYNAMO_USE_FULLGRAPH: bool = "ACCELERATE_DYNAMO_USE_FULLGRAPH", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether shapes may change.
    DYNAMO_USE_DYNAMIC: bool = "ACCELERATE_DYNAMO_USE_DYNAMIC", PYTHON_FLAG, None, Launcher, Kept;
    /// Whether repeated blocks are compiled once.
    DYNAMO_USE_REGIONAL_COMPILATION: bool = "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", PYTHON_FLAG, None, Launcher, Kept;

    // Other surroundings.
    /// File in which a process leaves the reason of its failure.
    ERROR_FILE: String = "TORCHELASTIC_ERROR_FILE", TEXT, None, Launcher, Replaced;
    /// Threads keep their cores (Intel OpenMP).
    KMP_AFFINITY: String = "KMP_AFFINITY", TEXT, None, Launcher, Kept;
    /// Milliseconds that idle threads wait before they sleep (Intel OpenMP).
    KMP_BLOCKTIME: u64 = "KMP_BLOCKTIME", WHOLE, None, Launcher, Kept;
    /// Threads of Intel's collective library.
    CCL_WORKER_COUNT: u64 = "CCL_WORKER_COUNT", WHOLE, None, Launcher, Kept;
    /// How NCCL tells of a failed collective.
    NCCL_ASYNC_ERROR_HANDLING: u64 = "TORCH_NCCL_ASYNC_ERROR_HANDLING", WHOLE, None, Launcher, Kept;
    // Where the config file is.
    /// Folder in which models, data and settings are kept.
    HF_HOME: String = "HF_HOME", TEXT, None, User, Kept;
    /// Folder for all caches of the user; `huggingface` in it is taken if `HF_HOME` is not set.
    XDG_CACHE_HOME: String = "XDG_CACHE_HOME", TEXT, None, User, Kept;
    /// Folder of the models that were fetched; by default `hub` in `HF_HOME`.
    HF_HUB_CACHE: String = "HF_HUB_CACHE", TEXT, None, User, Kept;
    /// The same folder, by its older name.
    HUGGINGFACE_HUB_CACHE: String = "HUGGINGFACE_HUB_CACHE", TEXT, None, User, Kept;
    /// Whether the hub must not be asked; any other word means no.
    HF_HUB_OFFLINE: String = "HF_HUB_OFFLINE", TEXT, None, User, Kept;
    /// Address of the hub.
    HF_ENDPOINT: String = "HF_ENDPOINT", TEXT, None, User, Kept;
    /// What lets the user in at the hub.
    HF_TOKEN: String = "HF_TOKEN", TEXT, None, User, Kept;
    /// File that holds it; by default `token` in `HF_HOME`.
    HF_TOKEN_PATH: String = "HF_TOKEN_PATH", TEXT, None, User, Kept;
    /// Folder of pyenv, whose stand-ins for Python choose a version.
    PYENV_ROOT: String = "PYENV_ROOT", TEXT, None, User, Kept;
    /// Versions of Python that pyenv chooses, colon-separated; the first one counts.
    PYENV_VERSION: String = "PYENV_VERSION", TEXT, None, User, Kept;
    /// Whether Python writes through at once; set where a script chooses its interpreter itself.
    PYTHONUNBUFFERED: String = "PYTHONUNBUFFERED", TEXT, None, Launcher, Kept;
    /// Whether Python prints its stacks when a signal ends it; set where there is a time limit.
    PYTHONFAULTHANDLER: String = "PYTHONFAULTHANDLER", TEXT, None, Launcher, Kept;
    /// Folders in which Python looks for packages first.
    PYTHONPATH: String = "PYTHONPATH", TEXT, None, User, Kept;
    /// Folder of the packages that a user installed for all environments.
    PYTHONUSERBASE: String = "PYTHONUSERBASE", TEXT, None, User, Kept;
    /// Folder of the libtorch that our library links.
    LIBTORCH: String = "LIBTORCH", TEXT, None, User, Kept;
    /// Folder of the user.
    HOME: String = "HOME", TEXT, None, User, Kept;

    // How a job reaches other machines.
    /// Path of `accelerate` on the other machines, if it is not the path it has here.
    REMOTE_BIN: String = "ACCELERATE_REMOTE_BIN", TEXT, None, User, Kept;
    /// Machines of the job and the devices used on each, as base64 of JSON, for the launcher that
    /// runs on each of them.
    WORLD_INFO: String = "ACCELERATE_WORLD_INFO", TEXT, None, Launcher, Replaced;
    /// Name of the file with variables for other machines.
    DS_ENV_FILE: String = "DS_ENV_FILE", TEXT, Some(".deepspeed_env"), User, Kept;
    /// Whether Open MPI may be used by root; needs the confirmation too.
    OMPI_ALLOW_ROOT: bool = "OMPI_ALLOW_RUN_AS_ROOT", DIGIT_FLAG, Some("0"), User, Kept;
    /// The confirmation that Open MPI may be used by root.
    OMPI_CONFIRM_ROOT: bool = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", DIGIT_FLAG, Some("0"), User, Kept;
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
