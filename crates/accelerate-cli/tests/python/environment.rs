//! What processes are told: the same as by the original, for the same arguments.

use std::collections::{BTreeMap, BTreeSet};

use accelerate_testkit::parity_python;
use serde_json::{Value, json};

use crate::{files::config_file, original::ask, ours::Home};

/// One way to start a job.
struct Job {
    arguments: &'static str,
    /// Config file among the fixtures.
    file: Option<&'static str>,
    /// Variables that are different on purpose, and why.
    differs: &'static [(&'static str, &'static str)],
}

const fn job(arguments: &'static str, differs: &'static [(&'static str, &'static str)]) -> Job {
    Job {
        arguments,
        file: None,
        differs,
    }
}

const fn file(file: &'static str, differs: &'static [(&'static str, &'static str)]) -> Job {
    Job {
        arguments: "",
        file: Some(file),
        differs,
    }
}

/// Where a process stands: the original leaves that to another program, or leaves it out.
const PLACE: [&str; 17] = [
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "WORLD_SIZE",
];

const NOT_PINNED: &str = "pins every process to the same cores; only for a process alone";
const DEEPSPEED_TOO: &str = "DeepSpeed jobs compile and use threads like others";

const DEEPSPEED: &[(&str, &str)] = &[
    ("ACCELERATE_DYNAMO_BACKEND", DEEPSPEED_TOO),
    ("ACCELERATE_DYNAMO_MODE", DEEPSPEED_TOO),
    ("ACCELERATE_DYNAMO_USE_DYNAMIC", DEEPSPEED_TOO),
    ("ACCELERATE_DYNAMO_USE_FULLGRAPH", DEEPSPEED_TOO),
    ("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", DEEPSPEED_TOO),
    ("OMP_NUM_THREADS", DEEPSPEED_TOO),
];

const DEEPSPEED_NVME: &[(&str, &str)] = &[
    DEEPSPEED[0],
    DEEPSPEED[1],
    DEEPSPEED[2],
    DEEPSPEED[3],
    DEEPSPEED[4],
    DEEPSPEED[5],
    ("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", NVME),
];

const NVME: &str = "the original's library reads it, its launcher forgets it";

const FP8_BACKEND: &[(&str, &str)] = &[(
    "ACCELERATE_FP8_BACKEND",
    "in capitals, which alone the original's library knows",
)];

const FP8_FILE: &[(&str, &str)] = &[
    ("ACCELERATE_FP8_AMAX_COMPUTE_ALGO", FP8_NAMES),
    ("ACCELERATE_FP8_AMAX_COMPUTE_ALGORITHM", FP8_NAMES),
    ("ACCELERATE_FP8_AMAX_HISTORY_LEN", FP8_NAMES),
    ("ACCELERATE_FP8_AMAX_HISTORY_LENGTH", FP8_NAMES),
    ("ACCELERATE_FP8_OVERRIDE_DGRAD", FP8_TEXT),
    ("ACCELERATE_FP8_OVERRIDE_FPROP", FP8_TEXT),
    ("ACCELERATE_FP8_OVERRIDE_WGRAD", FP8_TEXT),
];
const FP8_NAMES: &str = "the original passes the documented key on under a name that nobody reads";
const FP8_TEXT: &str = "the original takes letters of the text apart";

const JOBS: [Job; 20] = [
    job("--cpu", &[]),
    job(
        "--cpu --num_processes 2 --mixed_precision bf16",
        &[("KMP_AFFINITY", NOT_PINNED), ("KMP_BLOCKTIME", NOT_PINNED)],
    ),
    job(
        "--multi_gpu --num_processes 2 --gpu_ids 0,1 --debug --enable_cpu_affinity",
        &[],
    ),
    job(
        "--multi_gpu --num_processes 2 --dynamo_backend inductor --dynamo_mode reduce-overhead \
         --dynamo_use_fullgraph --dynamo_use_dynamic --dynamo_use_regional_compilation",
        &[],
    ),
    job("--use_fsdp --num_processes 2", &[]),
    job(
        "--use_fsdp --num_processes 2 --fsdp_sharding_strategy SHARD_GRAD_OP \
         --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP \
         --fsdp_transformer_layer_cls_to_wrap BertLayer,T5Block \
         --fsdp_backward_prefetch BACKWARD_POST --fsdp_state_dict_type FULL_STATE_DICT \
         --fsdp_offload_params true --fsdp_use_orig_params false --fsdp_forward_prefetch True",
        &[],
    ),
    job(
        "--use_fsdp --num_processes 2 --fsdp_sharding_strategy 2",
        &[("FSDP_SHARDING_STRATEGY", "the name instead of its number")],
    ),
    job(
        "--use_fsdp --num_processes 4 --fsdp_version 2 --fsdp_reshard_after_forward false \
         --fsdp_auto_wrap_policy SIZE_BASED_WRAP --fsdp_min_num_params 2000 \
         --fsdp_activation_checkpointing true --fsdp_activation_checkpointing_offload true \
         --fsdp_state_dict_type SHARDED_STATE_DICT --fsdp_cpu_ram_efficient_loading false",
        &[],
    ),
    job(
        "--use_fsdp --num_processes 8 --fsdp_version 2 --use_parallelism_config \
         --parallelism_config_dp_replicate_size 2 --parallelism_config_dp_shard_size 2 \
         --parallelism_config_cp_size 2 --parallelism_config_cp_comm_strategy alltoall",
        &[],
    ),
    job(
        "--use_fsdp --num_processes 8 --fsdp_version 2 --use_parallelism_config \
         --parallelism_config_tp_size 4 --parallelism_config_sp_size 2 \
         --parallelism_config_sp_seq_length 512 \
         --parallelism_config_sp_attn_implementation flash_attention_2",
        &[],
    ),
    job(
        "--use_deepspeed --num_processes 2 --zero_stage 3 --gradient_accumulation_steps 4 \
         --gradient_clipping 1.0 --offload_optimizer_device cpu --offload_param_device nvme \
         --offload_param_nvme_path /scratch --zero3_init_flag true \
         --zero3_save_16bit_model false --deepspeed_moe_layer_cls_names MixtralSparseMoeBlock",
        DEEPSPEED_NVME,
    ),
    job(
        "--use_megatron_lm --num_processes 4 --megatron_lm_tp_degree 2 --megatron_lm_pp_degree 2 \
         --megatron_lm_num_micro_batches 2 --megatron_lm_recompute_activations true \
         --megatron_lm_sequence_parallelism true --megatron_lm_use_distributed_optimizer false \
         --megatron_lm_gradient_clipping 0.5 --megatron_lm_recompute_granularity selective \
         --megatron_lm_attention_dropout 0.1",
        &[],
    ),
    job(
        "--multi_gpu --num_processes 2 --mixed_precision fp8 --fp8_backend te --fp8_format E4M3 \
         --fp8_margin 1 --fp8_interval 2 --fp8_amax_history_len 16 --fp8_amax_compute_algo max \
         --fp8_override_linear_precision true,false,true --fp8_use_autocast_during_eval",
        FP8_BACKEND,
    ),
    job(
        "--multi_gpu --num_processes 2 --mixed_precision fp8 --fp8_backend ao \
         --fp8_pad_inner_dim false",
        FP8_BACKEND,
    ),
    file("two_gpus_0_11.yaml", &[]),
    file(
        "fsdp_1.yaml",
        &[(
            "FSDP_BACKWARD_PREFETCH",
            "the original drops the documented key",
        )],
    ),
    file("deepspeed_stage_3.yaml", DEEPSPEED),
    file("megatron_lm.yaml", &[]),
    file("parallelism.yaml", &[]),
    file("fp8_0_34.yaml", FP8_FILE),
];

impl Job {
    fn arguments(&self) -> Vec<String> {
        let mut list: Vec<String> = self
            .arguments
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        if let Some(file) = self.file {
            list.extend(["--config_file".to_owned(), config_file(file)]);
        }
        // Each has its own idea of a good number.
        list.extend(["--num_cpu_threads_per_process", "3", "/bin/true"].map(str::to_owned));
        list
    }
}

/// What our launcher says that it would tell the first process.
fn ours(home: &Home, arguments: &[String]) -> BTreeMap<String, String> {
    let mut command = home.accelerate();
    command.args(["launch", "--dry_run"]).args(arguments);
    let done = crate::ours::Done::of(&command.output().unwrap()).assert_code(0);
    let text = done.stdout;
    let (_, rest) = text
        .split_once("environment of the first process here:\n")
        .unwrap();
    let pairs = rest.lines().map_while(|line| line.strip_prefix("  "));
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap());
    pairs
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

/// Equal but for the case of truth words, and for digits where the original's flags make them so.
fn is_same(name: &str, ours: &str, theirs: &str) -> bool {
    let word = |text: &str| match text {
        "1" if name.starts_with("ACCELERATE_FP8_") => "true".to_owned(),
        "0" if name.starts_with("ACCELERATE_FP8_OVERRIDE_") => "false".to_owned(),
        text if matches!(text.to_ascii_lowercase().as_str(), "true" | "false") => {
            text.to_ascii_lowercase()
        }
        text => text.to_owned(),
    };
    word(ours) == word(theirs)
}

#[test]
fn parity_processes_are_told_the_same() {
    let Some(python) = parity_python("parity_processes_are_told_the_same") else {
        return;
    };
    let lists: Vec<_> = JOBS.iter().map(Job::arguments).collect();
    let answers = ask(&python, "environment", &json!(lists));
    let home = Home::new();
    let mut wrong = Vec::new();
    for ((job, arguments), theirs) in JOBS.iter().zip(&lists).zip(answers.as_array().unwrap()) {
        let mut ours = ours(&home, arguments);
        // Each has its own working folder.
        let path = (ours.remove("PYTHONPATH"), theirs.get("PYTHONPATH"));
        assert_eq!(path.0.is_some(), path.1.is_some(), "{arguments:?}");
        let names: BTreeSet<_> = theirs
            .as_object()
            .unwrap()
            .keys()
            .chain(ours.keys())
            .collect();
        for name in names {
            if PLACE.contains(&name.as_str()) || name == "PYTHONPATH" {
                continue;
            }
            let ours = ours.get(name).map(String::as_str);
            let theirs = theirs.get(name).and_then(Value::as_str);
            let same = match (ours, theirs) {
                (Some(ours), Some(theirs)) => is_same(name, ours, theirs),
                _ => false,
            };
            let is_meant = job.differs.iter().any(|(differs, _)| differs == name);
            if same == is_meant {
                wrong.push(format!(
                    "{} {}: {name}: ours {ours:?}, original {theirs:?}, meant to differ: \
                     {is_meant}",
                    job.arguments,
                    job.file.unwrap_or_default()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
