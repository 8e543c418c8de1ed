//! Compilation, DeepSpeed, FSDP, parallelism and Megatron.

use super::*;

#[test]
fn dynamo_takes_inductor_unless_told() {
    let text = written(&[("torch dynamo", "yes")]);
    assert_eq!(
        section(&text, "dynamo_config"),
        "dynamo_backend: INDUCTOR\n"
    );
    let text = written(&[
        ("torch dynamo", "yes"),
        ("Which backend", "torchxla_trace_once"),
        ("how torch.compile is called", "yes"),
        ("Which mode", "max-autotune"),
        ("dynamic shapes", "yes"),
    ]);
    assert_eq!(
        section(&text, "dynamo_config"),
        "dynamo_backend: TORCHXLA_TRACE_ONCE\ndynamo_mode: max-autotune\n\
         dynamo_use_dynamic: true\ndynamo_use_fullgraph: false\n\
         dynamo_use_regional_compilation: false\n"
    );
}

#[test]
fn deepspeed_settings_by_default() {
    let text = written(&[("Use DeepSpeed", "yes"), ("How many GPUs", "4")]);
    assert_eq!(
        section(&text, "deepspeed_config"),
        "gradient_accumulation_steps: 1\noffload_optimizer_device: none\n\
         offload_param_device: none\nzero3_init_flag: false\nzero_stage: 2\n"
    );
    has(
        &text,
        &[
            "distributed_type: DEEPSPEED",
            "num_processes: 4",
            "mixed_precision: 'no'",
        ],
    );
    has_not(&text, &["gpu_ids"]);
}

#[test]
fn deepspeed_with_everything_asked() {
    let text = written(&[
        ("Which kind of machine", "multi-XPU"),
        ("How many machines", "2"),
        ("address of the main machine", "main"),
        ("Which port", "29500"),
        ("Use DeepSpeed", "yes"),
        ("Which stage", "3"),
        ("optimizer states go", "nvme"),
        ("parameters go", "nvme"),
        ("takes the parameters", "/disk/p"),
        ("takes the optimizer", "/disk/o"),
        ("Over how many steps", "8"),
        ("Clip gradients", "yes"),
        ("At which norm", "0.5"),
        ("in 16 bits", "yes"),
        ("zero.Init", "yes"),
        ("mixture of experts", "yes"),
        ("layers with experts", "MixtralSparseMoeBlock"),
        ("Which launcher", "openmpi"),
        ("hostfile of DeepSpeed", "/etc/hostfile"),
        ("Leave out some", "yes"),
        ("left out", "worker-1"),
        ("Use only some", "yes"),
        ("Which ones are used", "worker-2:0,1"),
    ]);
    assert_eq!(
        section(&text, "deepspeed_config"),
        "deepspeed_exclusion_filter: worker-1\n\
         deepspeed_hostfile: /etc/hostfile\n\
         deepspeed_inclusion_filter: worker-2:0,1\n\
         deepspeed_moe_layer_cls_names: MixtralSparseMoeBlock\n\
         deepspeed_multinode_launcher: openmpi\n\
         gradient_accumulation_steps: 8\n\
         gradient_clipping: 0.5\n\
         offload_optimizer_device: nvme\n\
         offload_optimizer_nvme_path: /disk/o\n\
         offload_param_device: nvme\n\
         offload_param_nvme_path: /disk/p\n\
         zero3_init_flag: true\n\
         zero3_save_16bit_model: true\n\
         zero_stage: 3\n"
    );
}

#[test]
fn early_stages_offload_nothing_and_the_standard_launcher_has_no_hostfile() {
    let text = written(&[
        ("Which kind of machine", "multi-GPU"),
        ("How many machines", "2"),
        ("address of the main machine", "main"),
        ("Which port", "29500"),
        ("Use DeepSpeed", "yes"),
        ("Which stage", "1"),
        ("Which launcher", "standard"),
    ]);
    assert_eq!(
        section(&text, "deepspeed_config"),
        "deepspeed_multinode_launcher: standard\ngradient_accumulation_steps: 1\n\
         zero3_init_flag: false\nzero_stage: 1\n"
    );
}

#[test]
fn a_json_file_of_deepspeed_says_the_precision_too() {
    let text = written(&[
        ("Use DeepSpeed", "yes"),
        ("JSON file for DeepSpeed", "yes"),
        ("Where is the JSON file", "zero.json"),
    ]);
    assert_eq!(
        section(&text, "deepspeed_config"),
        "deepspeed_config_file: zero.json\nzero3_init_flag: false\n"
    );
    has_not(&text, &["mixed_precision", "zero_stage"]);
}

#[test]
fn fsdp_2_by_default() {
    let text = written(&[
        ("Which kind of machine", "multi-NPU"),
        ("(FSDP)", "yes"),
        ("Which classes", "BertLayer,T5Block"),
        ("How many GPUs", "8"),
    ]);
    assert_eq!(
        section(&text, "fsdp_config"),
        "fsdp_activation_checkpointing: false\n\
         fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n\
         fsdp_cpu_ram_efficient_loading: true\n\
         fsdp_offload_params: false\n\
         fsdp_reshard_after_forward: true\n\
         fsdp_state_dict_type: SHARDED_STATE_DICT\n\
         fsdp_transformer_layer_cls_to_wrap: BertLayer,T5Block\n\
         fsdp_version: 2\n"
    );
    has(&text, &["distributed_type: FSDP", "num_processes: 8"]);
    has_not(&text, &["parallelism_config", "gpu_ids"]);
}

#[test]
fn fsdp_1_asks_for_more() {
    let text = written(&[
        ("Which kind of machine", "multi-GPU"),
        ("(FSDP)", "yes"),
        ("Which version", "FSDP1"),
        ("What is sharded", "HYBRID_SHARD"),
        ("How is the model cut", "SIZE_BASED_WRAP"),
        ("How many parameters", "1e6"),
        ("backward pass?", "BACKWARD_POST"),
        ("form are checkpoints", "LOCAL_STATE_DICT"),
        ("early in the forward", "yes"),
        ("use_orig_params", "no"),
        ("RAM-efficient", "no"),
        ("send its parameters", "yes"),
        ("Recompute activations", "yes"),
    ]);
    assert_eq!(
        section(&text, "fsdp_config"),
        "fsdp_activation_checkpointing: true\n\
         fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n\
         fsdp_backward_prefetch: BACKWARD_POST\n\
         fsdp_cpu_ram_efficient_loading: false\n\
         fsdp_forward_prefetch: true\n\
         fsdp_min_num_params: 1000000\n\
         fsdp_offload_params: false\n\
         fsdp_reshard_after_forward: HYBRID_SHARD\n\
         fsdp_state_dict_type: LOCAL_STATE_DICT\n\
         fsdp_sync_module_states: true\n\
         fsdp_use_orig_params: false\n\
         fsdp_version: 1\n"
    );
}

#[test]
fn fsdp_1_loads_on_rank_0_and_sends() {
    let text = written(&[
        ("Which kind of machine", "multi-GPU"),
        ("(FSDP)", "yes"),
        ("Which version", "0"),
        ("How is the model cut", "NO_WRAP"),
    ]);
    has(
        &text,
        &[
            "  fsdp_sync_module_states: true",
            "  fsdp_state_dict_type: FULL_STATE_DICT",
            "  fsdp_reshard_after_forward: FULL_SHARD",
            "  fsdp_use_orig_params: true",
        ],
    );
}

#[test]
fn layers_may_come_from_the_model() {
    let text = written(&[
        ("Which kind of machine", "multi-GPU"),
        ("(FSDP)", "yes"),
        ("_no_split_modules", "yes"),
    ]);
    has_not(&text, &["fsdp_transformer_layer_cls_to_wrap"]);
}

#[test]
fn parallelism_asks_how_parts_of_a_sequence_are_exchanged() {
    let common = [
        ("Which kind of machine", "multi-GPU"),
        ("(FSDP)", "yes"),
        ("How is the model cut", "NO_WRAP"),
        ("other kinds of parallelism", "yes"),
        ("tensor parallelism", "2"),
    ];
    let sizes = "parallelism_config_cp_size: 1\nparallelism_config_dp_replicate_size: 1\n\
                 parallelism_config_dp_shard_size: 1\nparallelism_config_tp_size: 2\n";
    assert_eq!(section(&written(&common), "parallelism_config"), sizes);
    let more = [("context parallelism", "2"), ("exchange", "alltoall")];
    let text = written(&[common.as_slice(), more.as_slice()].concat());
    let strategy = "parallelism_config_cp_comm_strategy: alltoall\n";
    assert_eq!(
        section(&text, "parallelism_config"),
        strategy.to_owned() + &sizes.replace("cp_size: 1", "cp_size: 2")
    );
}

#[test]
fn megatron_as_in_the_documentation() {
    let text = written(&[
        ("Which kind of machine", "multi-GPU"),
        ("Megatron", "yes"),
        ("tensor parallelism", "2"),
        ("stages", "2"),
        ("micro-batches", "2"),
        ("How many GPUs does the job", "4"),
        ("lower precision", "bf16"),
    ]);
    assert_eq!(
        section(&text, "megatron_lm_config"),
        "megatron_lm_gradient_clipping: 1.0\n\
         megatron_lm_num_micro_batches: 2\n\
         megatron_lm_pp_degree: 2\n\
         megatron_lm_recompute_activations: true\n\
         megatron_lm_sequence_parallelism: true\n\
         megatron_lm_tp_degree: 2\n\
         megatron_lm_use_distributed_optimizer: true\n"
    );
    has(
        &text,
        &[
            "distributed_type: MEGATRON_LM",
            "num_processes: 4",
            "mixed_precision: bf16",
        ],
    );
}
