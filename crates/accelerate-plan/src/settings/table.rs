//! The table: every setting of a launch, once.

use std::num::{NonZeroU32, NonZeroUsize};

use super::{
    choices::*,
    format::{DEVICES, LINEAR_PRECISION, LINES, MAP, OverrideLinearPrecision},
    key::{AnyKey, Flag::*, Key, Mark, Row, Section::*},
    reshard::ReshardAfterForward,
};
use crate::{
    MixedPrecision,
    config::Value,
    env::{
        self,
        format::{
            COUNT, DIGIT_FLAG, FLAG, INDEX, NUMBER, NUMBER_OR_AUTO, PORT_OR_FREE, PRECISION,
            PYTHON_FLAG, STAGE, STEPS_OR_AUTO, TEXT, THREADS, WHOLE,
        },
    },
};

/// Why nothing reads a setting of TPUs.
const NO_TPU: Mark = Mark::no_effect("jobs on TPUs are not started from here");

/// Why nothing reads a setting of SageMaker.
const NO_SAGEMAKER: Mark = Mark::no_effect("jobs of Amazon SageMaker are not started from here");

/// Why nothing reads a setting of Intel's extension.
const NO_IPEX: Mark = Mark::no_effect("PyTorch itself does today what Intel's extension did");

macro_rules! mark {
    () => {
        Mark::NONE
    };
    ($mark:expr) => {
        $mark
    };
}

macro_rules! settings {
    ($(
        $(#[doc = $meaning:literal])+
        $constant:ident: $type:ty = $name:literal [$($alias:literal),*],
        $section:ident, $flag:ident, $format:expr, $default:expr, $variable:expr $(, $mark:expr)?;
    )+) => {
        $(
            $(#[doc = $meaning])+
            #[doc = ""]
            #[doc = concat!("Setting `", $name, "`.")]
            pub static $constant: Key<$type> = Key::new(
                Row {
                    name: $name,
                    aliases: &[$($alias),*],
                    section: $section,
                    flag: $flag,
                    default: $default,
                    meaning: concat!($($meaning),+).trim_ascii(),
                    mark: mark!($($mark)?),
                },
                $format,
                $variable,
            );
        )+

        /// Every setting, in the order in which they are listed.
        pub static TABLE: &[&dyn AnyKey] = &[$(&$constant),+];
    };
}

settings! {
    // Where and what.
    /// Where the job runs.
    COMPUTE_ENVIRONMENT: ComputeEnvironment = "compute_environment" [], Top, FileOnly, &ComputeEnvironment::FORMAT, Some("LOCAL_MACHINE"), None;
    /// What kind of job it is.
    DISTRIBUTED_TYPE: DistributedType = "distributed_type" [], Top, FileOnly, &DistributedType::FORMAT, None, None;
    /// Lower precision to compute in.
    MIXED_PRECISION: MixedPrecision = "mixed_precision" [], Top, OneValue, &PRECISION, Some("no"), Some(&env::MIXED_PRECISION);
    /// Stay on the CPU.
    USE_CPU: bool = "use_cpu" [], Top, FileOnly, &PYTHON_FLAG, Some("false"), Some(&env::USE_CPU);
    /// Check collectives before they run, and say more.
    DEBUG: bool = "debug" [], Top, Switch, &FLAG, Some("false"), Some(&env::DEBUG_MODE);
    /// Processes of the job, on all machines together.
    NUM_PROCESSES: NonZeroUsize = "num_processes" [], Top, OneValue, &COUNT, None, Some(&env::NUM_PROCESSES);
    /// Processes on this machine; machines may differ.
    NUM_PROCESSES_PER_MACHINE: NonZeroUsize = "num_processes_per_machine" ["nproc_per_node"], Top, OneValue, &COUNT, None, None;
    /// Number of this machine, from 0.
    MACHINE_RANK: usize = "machine_rank" [], Top, OneValue, &INDEX, None, Some(&env::MACHINE_RANK);
    /// Machines of the job.
    NUM_MACHINES: NonZeroUsize = "num_machines" [], Top, OneValue, &COUNT, Some("1"), Some(&env::NUM_MACHINES);
    /// Devices to use: `all`, or numbers with commas between.
    GPU_IDS: String = "gpu_ids" [], Top, OneValue, &DEVICES, Some("all"), None;
    /// Address of the machine that runs rank 0.
    MAIN_PROCESS_IP: String = "main_process_ip" [], Top, OneValue, &TEXT, None, Some(&env::MAIN_PROCESS_IP);
    /// Port at which the processes meet; 0 picks a free one.
    MAIN_PROCESS_PORT: u16 = "main_process_port" [], Top, OneValue, &PORT_OR_FREE, None, Some(&env::MAIN_PROCESS_PORT);
    /// How the machines find each other.
    RDZV_BACKEND: RdzvBackend = "rdzv_backend" [], Top, OneValue, &RdzvBackend::FORMAT, Some("static"), None;
    /// Whether all machines are in one network.
    SAME_NETWORK: bool = "same_network" [], Top, Switch, &FLAG, Some("false"), None, Mark::no_effect("machines find each other wherever the address leads");
    /// Function that TPU processes start with.
    MAIN_TRAINING_FUNCTION: String = "main_training_function" [], Top, OneValue, &TEXT, Some("main"), None, NO_TPU;
    /// Keep each process on the cores next to its device.
    ENABLE_CPU_AFFINITY: bool = "enable_cpu_affinity" [], Top, Switch, &DIGIT_FLAG, Some("false"), Some(&env::CPU_AFFINITY);
    /// On TPUs, whether 32-bit floats become 16-bit ones.
    DOWNCAST_BF16: bool = "downcast_bf16" [], Top, Switch, &FLAG, Some("false"), None, NO_TPU;
    /// Name of the TPU.
    TPU_NAME: String = "tpu_name" [], Top, FileOnly, &TEXT, None, None, NO_TPU;
    /// Zone of the TPU.
    TPU_ZONE: String = "tpu_zone" [], Top, FileOnly, &TEXT, None, None, NO_TPU;
    /// Whether the TPU is a cluster.
    TPU_USE_CLUSTER: bool = "tpu_use_cluster" ["tpu_cluster"], Top, Switch, &FLAG, Some("false"), None, NO_TPU;
    /// Whether commands on TPU machines run as root.
    TPU_USE_SUDO: bool = "tpu_use_sudo" [], Top, Switch, &FLAG, Some("false"), None, NO_TPU;
    /// File with commands that prepare TPU machines.
    COMMAND_FILE: String = "command_file" [], Top, FileOnly, &TEXT, None, None, NO_TPU;
    /// Commands that prepare TPU machines.
    COMMANDS: Vec<String> = "commands" [], Top, FileOnly, &LINES, None, None, NO_TPU;
    /// Names of TPU machines.
    TPU_VM: Vec<String> = "tpu_vm" ["vm"], Top, Repeated, &LINES, None, None, NO_TPU;
    /// Variables for TPU machines.
    TPU_ENV: Vec<String> = "tpu_env" ["env"], Top, Repeated, &LINES, None, None, NO_TPU;

    // FP8.
    /// Package that computes in FP8.
    FP8_BACKEND: Fp8Backend = "fp8_backend" [], Fp8, OneValue, &Fp8Backend::FORMAT, None, Some(&env::FP8_BACKEND);
    /// Evaluate in FP8 too (Transformer Engine).
    FP8_USE_AUTOCAST_DURING_EVAL: bool = "fp8_use_autocast_during_eval" [], Fp8, Switch, &PYTHON_FLAG, Some("false"), Some(&env::FP8_USE_AUTOCAST_DURING_EVAL);
    /// Bits of headroom of the scale (Transformer Engine).
    FP8_MARGIN: u64 = "fp8_margin" [], Fp8, OneValue, &WHOLE, Some("0"), Some(&env::FP8_MARGIN);
    /// Steps between two scales (Transformer Engine).
    FP8_INTERVAL: u64 = "fp8_interval" [], Fp8, OneValue, &WHOLE, Some("1"), Some(&env::FP8_INTERVAL);
    /// 8-bit floats to use (Transformer Engine).
    FP8_FORMAT: Fp8Format = "fp8_format" [], Fp8, OneValue, &Fp8Format::FORMAT, Some("HYBRID"), Some(&env::FP8_FORMAT);
    /// Maxima that are remembered (Transformer Engine).
    FP8_AMAX_HISTORY_LEN: u64 = "fp8_amax_history_len" ["fp8_amax_history_length"], Fp8, OneValue, &WHOLE, Some("1024"), Some(&env::FP8_AMAX_HISTORY_LEN);
    /// How the scale follows from earlier maxima (Transformer Engine).
    FP8_AMAX_COMPUTE_ALGO: AmaxComputeAlgo = "fp8_amax_compute_algo" ["fp8_amax_compute_algorithm"], Fp8, OneValue, &AmaxComputeAlgo::FORMAT, Some("most_recent"), Some(&env::FP8_AMAX_COMPUTE_ALGO);
    /// How much is kept in FP8 (MS-AMP).
    FP8_OPT_LEVEL: Fp8OptLevel = "fp8_opt_level" ["fp8_optimization_level"], Fp8, OneValue, &Fp8OptLevel::FORMAT, Some("O2"), Some(&env::FP8_OPT_LEVEL);
    /// Gather shards in FP8 (torchao).
    FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER: bool = "fp8_enable_fsdp_float8_all_gather" [], Fp8, OneValue, &DIGIT_FLAG, Some("true"), Some(&env::FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER);
    /// Pad matrices to sizes that the hardware takes (torchao).
    FP8_PAD_INNER_DIM: bool = "fp8_pad_inner_dim" [], Fp8, OneValue, &DIGIT_FLAG, Some("true"), Some(&env::FP8_PAD_INNER_DIM);
    /// Products that stay in higher precision: three truth words for fprop, dgrad and wgrad (Transformer Engine).
    FP8_OVERRIDE_LINEAR_PRECISION: OverrideLinearPrecision = "fp8_override_linear_precision" [], Fp8, OneValue, &LINEAR_PRECISION, Some("false,false,false"), None;

    // DeepSpeed.
    /// What is sharded: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too.
    ZERO_STAGE: u64 = "zero_stage" [], DeepSpeed, OneValue, &STAGE, None, Some(&env::DEEPSPEED_ZERO_STAGE);
    /// Steps over which gradients are added up before the optimizer acts.
    GRADIENT_ACCUMULATION_STEPS: NonZeroU32 = "gradient_accumulation_steps" [], DeepSpeed, OneValue, &STEPS_OR_AUTO, None, Some(&env::GRADIENT_ACCUMULATION_STEPS);
    /// Largest norm of the gradients.
    GRADIENT_CLIPPING: f64 = "gradient_clipping" [], DeepSpeed, OneValue, &NUMBER_OR_AUTO, None, Some(&env::GRADIENT_CLIPPING);
    /// Where the optimizer state is kept.
    OFFLOAD_OPTIMIZER_DEVICE: OffloadDevice = "offload_optimizer_device" [], DeepSpeed, OneValue, &OffloadDevice::FORMAT, None, Some(&env::DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE);
    /// Where parameters are kept.
    OFFLOAD_PARAM_DEVICE: OffloadDevice = "offload_param_device" [], DeepSpeed, OneValue, &OffloadDevice::FORMAT, None, Some(&env::DEEPSPEED_OFFLOAD_PARAM_DEVICE);
    /// Folder for optimizer state on disk.
    OFFLOAD_OPTIMIZER_NVME_PATH: String = "offload_optimizer_nvme_path" [], DeepSpeed, OneValue, &TEXT, None, Some(&env::DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH);
    /// Folder for parameters on disk.
    OFFLOAD_PARAM_NVME_PATH: String = "offload_param_nvme_path" [], DeepSpeed, OneValue, &TEXT, None, Some(&env::DEEPSPEED_OFFLOAD_PARAM_NVME_PATH);
    /// Build the model in shards from the start.
    ZERO3_INIT_FLAG: bool = "zero3_init_flag" [], DeepSpeed, OneValue, &FLAG, None, Some(&env::DEEPSPEED_ZERO3_INIT);
    /// Gather a whole 16-bit model for saving.
    ZERO3_SAVE_16BIT_MODEL: bool = "zero3_save_16bit_model" [], DeepSpeed, OneValue, &FLAG, None, Some(&env::DEEPSPEED_ZERO3_SAVE_16BIT_MODEL);
    /// DeepSpeed's own config file, instead of the flags of this group.
    DEEPSPEED_CONFIG_FILE: String = "deepspeed_config_file" [], DeepSpeed, OneValue, &TEXT, None, Some(&env::DEEPSPEED_CONFIG_FILE);
    /// File that lists machines and their devices.
    DEEPSPEED_HOSTFILE: String = "deepspeed_hostfile" [], DeepSpeed, OneValue, &TEXT, None, None;
    /// Machines and devices of the host file to leave out.
    DEEPSPEED_EXCLUSION_FILTER: String = "deepspeed_exclusion_filter" [], DeepSpeed, OneValue, &TEXT, None, None;
    /// Machines and devices of the host file to use.
    DEEPSPEED_INCLUSION_FILTER: String = "deepspeed_inclusion_filter" [], DeepSpeed, OneValue, &TEXT, None, None;
    /// What starts processes on other machines.
    DEEPSPEED_MULTINODE_LAUNCHER: MultinodeLauncher = "deepspeed_multinode_launcher" [], DeepSpeed, OneValue, &MultinodeLauncher::FORMAT, None, None;
    /// Class names of mixture-of-experts layers, with commas between.
    DEEPSPEED_MOE_LAYER_CLS_NAMES: String = "deepspeed_moe_layer_cls_names" [], DeepSpeed, OneValue, &TEXT, None, Some(&env::DEEPSPEED_MOE_LAYER_CLS_NAMES);

    // FSDP.
    /// Version of the settings of this group.
    FSDP_VERSION: FsdpVersion = "fsdp_version" [], Fsdp, OneValue, &FsdpVersion::FORMAT, Some("1"), Some(&env::FSDP_VERSION);
    /// Keep parameters and gradients in CPU memory.
    FSDP_OFFLOAD_PARAMS: bool = "fsdp_offload_params" [], Fsdp, OneValue, &FLAG, Some("false"), Some(&env::FSDP_OFFLOAD_PARAMS);
    /// Parameters from which a module becomes a unit (size-based wrapping).
    FSDP_MIN_NUM_PARAMS: u64 = "fsdp_min_num_params" [], Fsdp, OneValue, &WHOLE, Some("100000000"), Some(&env::FSDP_MIN_NUM_PARAMS);
    /// What is sharded over which ranks (version 1).
    FSDP_SHARDING_STRATEGY: ShardingStrategy = "fsdp_sharding_strategy" [], Fsdp, OneValue, &ShardingStrategy::FORMAT, Some("FULL_SHARD"), Some(&env::FSDP_SHARDING_STRATEGY);
    /// Drop parameters after the forward pass (version 2), or a sharding strategy (version 1).
    FSDP_RESHARD_AFTER_FORWARD: ReshardAfterForward = "fsdp_reshard_after_forward" [], Fsdp, OneValue, &ReshardAfterForward::FORMAT, Some("true"), Some(&env::FSDP_RESHARD_AFTER_FORWARD);
    /// Which modules become units.
    FSDP_AUTO_WRAP_POLICY: AutoWrapPolicy = "fsdp_auto_wrap_policy" [], Fsdp, OneValue, &AutoWrapPolicy::FORMAT, None, Some(&env::FSDP_AUTO_WRAP_POLICY);
    /// Class names of the modules that become units, with commas between.
    FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP: String = "fsdp_transformer_layer_cls_to_wrap" [], Fsdp, OneValue, &TEXT, None, Some(&env::FSDP_TRANSFORMER_CLS_TO_WRAP);
    /// When the next unit is gathered in the backward pass (version 1).
    FSDP_BACKWARD_PREFETCH: BackwardPrefetch = "fsdp_backward_prefetch" ["fsdp_backward_prefetch_policy"], Fsdp, OneValue, &BackwardPrefetch::FORMAT, None, Some(&env::FSDP_BACKWARD_PREFETCH);
    /// How the model is saved.
    FSDP_STATE_DICT_TYPE: StateDictType = "fsdp_state_dict_type" [], Fsdp, OneValue, &StateDictType::FORMAT, None, Some(&env::FSDP_STATE_DICT_TYPE);
    /// Gather the next unit early in the forward pass (version 1).
    FSDP_FORWARD_PREFETCH: bool = "fsdp_forward_prefetch" [], Fsdp, OneValue, &FLAG, Some("false"), Some(&env::FSDP_FORWARD_PREFETCH);
    /// Let modules show their own parameters (version 1).
    FSDP_USE_ORIG_PARAMS: bool = "fsdp_use_orig_params" [], Fsdp, OneValue, &FLAG, Some("true"), Some(&env::FSDP_USE_ORIG_PARAMS);
    /// Load the weights in one process of each machine only.
    FSDP_CPU_RAM_EFFICIENT_LOADING: bool = "fsdp_cpu_ram_efficient_loading" [], Fsdp, OneValue, &FLAG, Some("true"), Some(&env::FSDP_CPU_RAM_EFFICIENT_LOADING);
    /// Send the weights of rank 0 to the others at the start (version 1).
    FSDP_SYNC_MODULE_STATES: bool = "fsdp_sync_module_states" [], Fsdp, OneValue, &FLAG, Some("true"), Some(&env::FSDP_SYNC_MODULE_STATES);
    /// Compute activations again in the backward pass.
    FSDP_ACTIVATION_CHECKPOINTING: bool = "fsdp_activation_checkpointing" [], Fsdp, OneValue, &FLAG, Some("false"), Some(&env::FSDP_ACTIVATION_CHECKPOINTING);
    /// Keep what checkpointing still needs for the backward pass in CPU memory (version 2).
    FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD: bool = "fsdp_activation_checkpointing_offload" [], Fsdp, OneValue, &FLAG, Some("false"), Some(&env::FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD);
    /// Pattern of the names of modules that are not sharded.
    FSDP_IGNORED_MODULES: String = "fsdp_ignored_modules" [], Fsdp, FileOnly, &TEXT, None, Some(&env::FSDP_IGNORED_MODULES);

    // The mesh.
    /// Copies of the model.
    PARALLELISM_DP_REPLICATE_SIZE: NonZeroUsize = "parallelism_config_dp_replicate_size" [], Parallelism, OneValue, &COUNT, Some("1"), Some(&env::PARALLELISM_DP_REPLICATE_SIZE);
    /// Ranks over which a copy is sharded.
    PARALLELISM_DP_SHARD_SIZE: NonZeroUsize = "parallelism_config_dp_shard_size" [], Parallelism, OneValue, &COUNT, Some("1"), Some(&env::PARALLELISM_DP_SHARD_SIZE);
    /// Ranks over which layers are cut.
    PARALLELISM_TP_SIZE: NonZeroUsize = "parallelism_config_tp_size" [], Parallelism, OneValue, &COUNT, Some("1"), Some(&env::PARALLELISM_TP_SIZE);
    /// Ranks over which sequences are cut.
    PARALLELISM_CP_SIZE: NonZeroUsize = "parallelism_config_cp_size" [], Parallelism, OneValue, &COUNT, Some("1"), Some(&env::PARALLELISM_CP_SIZE);
    /// Whose context parallelism.
    PARALLELISM_CP_BACKEND: CpBackend = "parallelism_config_cp_backend" [], Parallelism, OneValue, &CpBackend::FORMAT, Some("torch"), Some(&env::PARALLELISM_CP_BACKEND);
    /// How context-parallel ranks exchange keys and values.
    PARALLELISM_CP_COMM_STRATEGY: CpCommStrategy = "parallelism_config_cp_comm_strategy" [], Parallelism, OneValue, &CpCommStrategy::FORMAT, Some("allgather"), Some(&env::PARALLELISM_CP_COMM_STRATEGY);
    /// Ranks over which sequences are cut by heads.
    PARALLELISM_SP_SIZE: NonZeroUsize = "parallelism_config_sp_size" [], Parallelism, OneValue, &COUNT, Some("1"), Some(&env::PARALLELISM_SP_SIZE);
    /// Whose sequence parallelism.
    PARALLELISM_SP_BACKEND: SpBackend = "parallelism_config_sp_backend" [], Parallelism, OneValue, &SpBackend::FORMAT, Some("deepspeed"), Some(&env::PARALLELISM_SP_BACKEND);
    /// Length of the sequences.
    PARALLELISM_SP_SEQ_LENGTH: NonZeroUsize = "parallelism_config_sp_seq_length" [], Parallelism, OneValue, &COUNT, None, Some(&env::PARALLELISM_SP_SEQ_LENGTH);
    /// Whether sequences differ in length.
    PARALLELISM_SP_SEQ_LENGTH_IS_VARIABLE: bool = "parallelism_config_sp_seq_length_is_variable" [], Parallelism, OneValue, &PYTHON_FLAG, Some("true"), Some(&env::PARALLELISM_SP_SEQ_LENGTH_IS_VARIABLE);
    /// Attention that is used on parts of the heads.
    PARALLELISM_SP_ATTN_IMPLEMENTATION: String = "parallelism_config_sp_attn_implementation" [], Parallelism, OneValue, &TEXT, Some("sdpa"), Some(&env::PARALLELISM_SP_ATTN_IMPLEMENTATION);

    // Megatron-LM.
    /// Ranks over which layers are cut.
    MEGATRON_LM_TP_DEGREE: NonZeroUsize = "megatron_lm_tp_degree" [], MegatronLm, OneValue, &COUNT, Some("1"), Some(&env::MEGATRON_LM_TP_DEGREE);
    /// Stages of the pipeline.
    MEGATRON_LM_PP_DEGREE: NonZeroUsize = "megatron_lm_pp_degree" [], MegatronLm, OneValue, &COUNT, Some("1"), Some(&env::MEGATRON_LM_PP_DEGREE);
    /// Pieces of a batch that pass through the pipeline.
    MEGATRON_LM_NUM_MICRO_BATCHES: NonZeroUsize = "megatron_lm_num_micro_batches" [], MegatronLm, OneValue, &COUNT, None, Some(&env::MEGATRON_LM_NUM_MICRO_BATCHES);
    /// Cut sequences where layers are not cut.
    MEGATRON_LM_SEQUENCE_PARALLELISM: bool = "megatron_lm_sequence_parallelism" [], MegatronLm, OneValue, &PYTHON_FLAG, None, Some(&env::MEGATRON_LM_SEQUENCE_PARALLELISM);
    /// Compute parts of attention again in the backward pass.
    MEGATRON_LM_RECOMPUTE_ACTIVATIONS: bool = "megatron_lm_recompute_activations" [], MegatronLm, OneValue, &PYTHON_FLAG, None, Some(&env::MEGATRON_LM_RECOMPUTE_ACTIVATIONS);
    /// Shard optimizer state over data-parallel ranks.
    MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER: bool = "megatron_lm_use_distributed_optimizer" [], MegatronLm, OneValue, &PYTHON_FLAG, None, Some(&env::MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER);
    /// Largest norm of the gradients.
    MEGATRON_LM_GRADIENT_CLIPPING: f64 = "megatron_lm_gradient_clipping" [], MegatronLm, OneValue, &NUMBER, Some("1.0"), Some(&env::MEGATRON_LM_GRADIENT_CLIPPING);
    /// Use its own full sharding.
    MEGATRON_LM_USE_CUSTOM_FSDP: bool = "megatron_lm_use_custom_fsdp" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_USE_CUSTOM_FSDP);
    /// Leave out optimizer state when loading.
    MEGATRON_LM_NO_LOAD_OPTIM: bool = "megatron_lm_no_load_optim" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_NO_LOAD_OPTIM);
    /// Do not count ends of documents in the loss.
    MEGATRON_LM_EOD_MASK_LOSS: bool = "megatron_lm_eod_mask_loss" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_EOD_MASK_LOSS);
    /// Copy for an optimizer on the CPU beside its steps.
    MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D: bool = "megatron_lm_overlap_cpu_optimizer_d2h_h2d" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D);
    /// Leave out optimizer state when saving.
    MEGATRON_LM_NO_SAVE_OPTIM: bool = "megatron_lm_no_save_optim" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_NO_SAVE_OPTIM);
    /// Run the optimizer on the CPU.
    MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD: bool = "megatron_lm_optimizer_cpu_offload" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD);
    /// Keep optimizer state in lower precision.
    MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER: bool = "megatron_lm_use_precision_aware_optimizer" [], MegatronLm, OneValue, &PYTHON_FLAG, Some("false"), Some(&env::MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER);
    /// Layers of the last stage.
    MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS: NonZeroUsize = "megatron_lm_decoder_last_pipeline_num_layers" [], MegatronLm, OneValue, &COUNT, None, Some(&env::MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS);
    /// Layers computed again in each stage.
    MEGATRON_LM_RECOMPUTE_NUM_LAYERS: NonZeroUsize = "megatron_lm_recompute_num_layers" [], MegatronLm, OneValue, &COUNT, None, Some(&env::MEGATRON_LM_RECOMPUTE_NUM_LAYERS);
    /// Ranks over which experts are spread.
    MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE: NonZeroUsize = "megatron_lm_expert_model_parallel_size" [], MegatronLm, OneValue, &COUNT, None, Some(&env::MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE);
    /// Ranks over which sequences are cut.
    MEGATRON_LM_CONTEXT_PARALLEL_SIZE: NonZeroUsize = "megatron_lm_context_parallel_size" [], MegatronLm, OneValue, &COUNT, None, Some(&env::MEGATRON_LM_CONTEXT_PARALLEL_SIZE);
    /// Ranks over which each expert is cut.
    MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE: NonZeroUsize = "megatron_lm_expert_tensor_parallel_size" [], MegatronLm, OneValue, &COUNT, None, Some(&env::MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE);
    /// What is computed again.
    MEGATRON_LM_RECOMPUTE_GRANULARITY: RecomputeGranularity = "megatron_lm_recompute_granularity" [], MegatronLm, OneValue, &RecomputeGranularity::FORMAT, None, Some(&env::MEGATRON_LM_RECOMPUTE_GRANULARITY);
    /// Which layers are computed again.
    MEGATRON_LM_RECOMPUTE_METHOD: RecomputeMethod = "megatron_lm_recompute_method" [], MegatronLm, OneValue, &RecomputeMethod::FORMAT, None, Some(&env::MEGATRON_LM_RECOMPUTE_METHOD);
    /// Attention kernel to use.
    MEGATRON_LM_ATTENTION_BACKEND: String = "megatron_lm_attention_backend" [], MegatronLm, OneValue, &TEXT, None, Some(&env::MEGATRON_LM_ATTENTION_BACKEND);
    /// Compute the softmax of attention in 32 bits.
    MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32: bool = "megatron_lm_attention_softmax_in_fp32" [], MegatronLm, OneValue, &PYTHON_FLAG, None, Some(&env::MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32);
    /// Divide the loss by the number of tokens.
    MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS: bool = "megatron_lm_calculate_per_token_loss" [], MegatronLm, OneValue, &PYTHON_FLAG, None, Some(&env::MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS);
    /// Let positions be rotations.
    MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS: bool = "megatron_lm_use_rotary_position_embeddings" [], MegatronLm, OneValue, &PYTHON_FLAG, None, Some(&env::MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS);
    /// Dropout in attention.
    MEGATRON_LM_ATTENTION_DROPOUT: f64 = "megatron_lm_attention_dropout" [], MegatronLm, OneValue, &NUMBER, None, Some(&env::MEGATRON_LM_ATTENTION_DROPOUT);
    /// Dropout of hidden states.
    MEGATRON_LM_HIDDEN_DROPOUT: f64 = "megatron_lm_hidden_dropout" [], MegatronLm, OneValue, &NUMBER, None, Some(&env::MEGATRON_LM_HIDDEN_DROPOUT);

    // MPI.
    /// File that lists the machines for `mpirun`.
    MPIRUN_HOSTFILE: String = "mpirun_hostfile" [], Mpirun, OneValue, &TEXT, None, None;
    /// Threads of Intel's collective library in each process.
    MPIRUN_CCL: u64 = "mpirun_ccl" [], Mpirun, OneValue, &WHOLE, Some("1"), None;

    // Intel's extension, in files of older versions.
    /// Whether Intel's extension was used.
    IPEX: bool = "ipex" [], Ipex, Switch, &FLAG, None, None, NO_IPEX;
    /// Whether Intel GPUs were used.
    USE_XPU: bool = "use_xpu" [], Ipex, Switch, &FLAG, None, None, NO_IPEX;

    // Compilation.
    /// Compiler that turns the model into kernels.
    DYNAMO_BACKEND: DynamoBackend = "dynamo_backend" [], Dynamo, OneValue, &DynamoBackend::FORMAT, Some("NO"), Some(&env::DYNAMO_BACKEND);
    /// What the compiler optimises for.
    DYNAMO_MODE: DynamoMode = "dynamo_mode" [], Dynamo, OneValue, &DynamoMode::FORMAT, Some("default"), Some(&env::DYNAMO_MODE);
    /// Refuse a model that is not one graph.
    DYNAMO_USE_FULLGRAPH: bool = "dynamo_use_fullgraph" [], Dynamo, Switch, &PYTHON_FLAG, Some("false"), Some(&env::DYNAMO_USE_FULLGRAPH);
    /// Let shapes change without compiling again.
    DYNAMO_USE_DYNAMIC: bool = "dynamo_use_dynamic" [], Dynamo, Switch, &PYTHON_FLAG, Some("false"), Some(&env::DYNAMO_USE_DYNAMIC);
    /// Compile repeated blocks once.
    DYNAMO_USE_REGIONAL_COMPILATION: bool = "dynamo_use_regional_compilation" [], Dynamo, Switch, &PYTHON_FLAG, Some("false"), Some(&env::DYNAMO_USE_REGIONAL_COMPILATION);

    // Amazon SageMaker.
    /// How the job is distributed.
    SAGEMAKER_DISTRIBUTED_TYPE: SageMakerDistribution = "distributed_type" [], SageMaker, FileOnly, &SageMakerDistribution::FORMAT, None, None, NO_SAGEMAKER;
    /// Kind of machine.
    EC2_INSTANCE_TYPE: String = "ec2_instance_type" [], SageMaker, FileOnly, &TEXT, None, None, NO_SAGEMAKER;
    /// Role that the job takes.
    IAM_ROLE_NAME: String = "iam_role_name" [], SageMaker, FileOnly, &TEXT, None, None, NO_SAGEMAKER;
    /// Container image.
    IMAGE_URI: String = "image_uri" [], SageMaker, FileOnly, &TEXT, None, None, NO_SAGEMAKER;
    /// Profile of the credentials.
    PROFILE: String = "profile" [], SageMaker, FileOnly, &TEXT, None, None, NO_SAGEMAKER;
    /// Region.
    REGION: String = "region" [], SageMaker, FileOnly, &TEXT, Some("us-east-1"), None, NO_SAGEMAKER;
    /// Start of the name of the job.
    BASE_JOB_NAME: String = "base_job_name" [], SageMaker, FileOnly, &TEXT, Some("accelerate-sagemaker-1"), None, NO_SAGEMAKER;
    /// Version of PyTorch.
    PYTORCH_VERSION: String = "pytorch_version" [], SageMaker, FileOnly, &TEXT, Some("1.10.2"), None, NO_SAGEMAKER;
    /// Version of Transformers.
    TRANSFORMERS_VERSION: String = "transformers_version" [], SageMaker, FileOnly, &TEXT, Some("4.17.0"), None, NO_SAGEMAKER;
    /// Version of Python.
    PY_VERSION: String = "py_version" [], SageMaker, FileOnly, &TEXT, Some("py38"), None, NO_SAGEMAKER;
    /// Table of inputs.
    SAGEMAKER_INPUTS_FILE: String = "sagemaker_inputs_file" [], SageMaker, FileOnly, &TEXT, None, None, NO_SAGEMAKER;
    /// Table of metrics.
    SAGEMAKER_METRICS_FILE: String = "sagemaker_metrics_file" [], SageMaker, FileOnly, &TEXT, None, None, NO_SAGEMAKER;
    /// Arguments merged over those of the job.
    ADDITIONAL_ARGS: Value = "additional_args" [], SageMaker, FileOnly, &MAP, None, None, NO_SAGEMAKER;

    // One start.
    /// Use the CPU: also starts several processes on it.
    CPU: bool = "cpu" [], FlagOnly, Switch, &FLAG, None, None;
    /// Use one process per accelerator.
    MULTI_GPU: bool = "multi_gpu" [], FlagOnly, Switch, &FLAG, None, None;
    /// Use TPUs.
    TPU: bool = "tpu" [], FlagOnly, Switch, &FLAG, None, None;
    /// Shard in the words of DeepSpeed.
    USE_DEEPSPEED: bool = "use_deepspeed" [], FlagOnly, Switch, &FLAG, None, Some(&env::USE_DEEPSPEED);
    /// Shard in the words of FSDP.
    USE_FSDP: bool = "use_fsdp" [], FlagOnly, Switch, &FLAG, None, Some(&env::USE_FSDP);
    /// Shard in the words of Megatron-LM.
    USE_MEGATRON_LM: bool = "use_megatron_lm" [], FlagOnly, Switch, &FLAG, None, Some(&env::USE_MEGATRON_LM);
    /// Lay out the mesh by the flags of its group.
    USE_PARALLELISM_CONFIG: bool = "use_parallelism_config" [], FlagOnly, Switch, &FLAG, None, Some(&env::USE_PARALLELISM_CONFIG);
    /// Threads of each process; by default the usable cores are shared out.
    NUM_CPU_THREADS_PER_PROCESS: NonZeroUsize = "num_cpu_threads_per_process" [], FlagOnly, OneValue, &THREADS, None, Some(&env::OMP_NUM_THREADS);
    /// How often a failed job is started again.
    MAX_RESTARTS: u64 = "max_restarts" [], FlagOnly, OneValue, &WHOLE, Some("0"), Some(&env::MAX_RESTARTS_ALLOWED);
    /// Seconds between two looks at the processes.
    MONITOR_INTERVAL: f64 = "monitor_interval" [], FlagOnly, OneValue, &NUMBER, Some("0.1"), None, Mark::no_effect("ends are noticed at once");
    /// Details of the rendezvous, as `key=value,key=value`.
    RDZV_CONF: String = "rdzv_conf" [], FlagOnly, OneValue, &TEXT, None, None;
    /// Role that the processes play.
    ROLE: String = "role" [], FlagOnly, OneValue, &TEXT, Some("default"), None;
    /// Access key of AWS.
    AWS_ACCESS_KEY_ID: String = "aws_access_key_id" [], FlagOnly, OneValue, &TEXT, None, None, NO_SAGEMAKER.secret();
    /// Secret key of AWS.
    AWS_SECRET_ACCESS_KEY: String = "aws_secret_access_key" [], FlagOnly, OneValue, &TEXT, None, None, NO_SAGEMAKER.secret();
}
