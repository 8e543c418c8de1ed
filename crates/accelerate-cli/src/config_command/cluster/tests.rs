use accelerate_plan::config::{Value, yaml};

use super::super::{
    ask::Scripted,
    device_summary::{DeviceKind, DeviceSummary},
    error::{ConfigCommandError, Result},
};
use super::interview;

type Answers = [(&'static str, &'static str)];

const APPLE: DeviceSummary = DeviceSummary {
    kind: DeviceKind::Mps,
    count: 1,
};

/// What is written after these answers and the defaults of all other questions.
fn written(answers: &Answers) -> String {
    let (record, ask) = interviewed(answers, DeviceSummary::CPU_ONLY);
    assert!(ask.left().is_empty(), "never asked: {:?}", ask.left());
    let Value::Map(mut entries) = record.unwrap() else {
        unreachable!("a section is a map");
    };
    entries.retain(|_, value| !value.is_absent());
    yaml::write(&Value::Map(entries))
}

fn interviewed(answers: &Answers, devices: DeviceSummary) -> (Result<Value>, Scripted) {
    let mut ask = Scripted::new(answers);
    let record = interview(&mut ask, devices).map(Value::from);
    (record, ask)
}

/// The part of a file that is one section.
fn section(text: &str, key: &str) -> String {
    let mut lines = text.lines().skip_while(|line| *line != format!("{key}:"));
    lines.next();
    let lines = lines.take_while(|line| line.starts_with(' '));
    lines
        .map(|line| format!("{}\n", line.trim_start()))
        .collect()
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            text.lines().any(|found| found == *line),
            "no `{line}` in:\n{text}"
        );
    }
}

fn has_not(text: &str, keys: &[&str]) {
    for key in keys {
        assert!(!text.contains(&format!("{key}:")), "`{key}` in:\n{text}");
    }
}

#[test]
fn defaults_throughout_give_the_known_file() {
    assert_eq!(
        written(&[]),
        "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: 'NO'
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"
    );
}

#[test]
fn on_the_cpu_there_are_no_device_ids() {
    let text = written(&[("Stay on the CPU", "yes")]);
    has(&text, &["use_cpu: true", "num_processes: 1"]);
    has_not(&text, &["gpu_ids"]);
}

#[test]
fn questions_come_in_the_order_of_the_original() {
    let (record, ask) = interviewed(
        &[
            ("Which kind of machine", "multi-GPU"),
            ("How many GPUs", "2"),
        ],
        DeviceSummary::CPU_ONLY,
    );
    record.unwrap();
    let words = [
        "kind of machine",
        "machines take part",
        "checked while running",
        "torch dynamo",
        "DeepSpeed",
        "FSDP",
        "Megatron",
        "How many GPUs",
        "Which GPUs",
        "CPU cores next to",
        "lower precision",
    ];
    assert_eq!(ask.asked.len(), words.len(), "{:?}", ask.asked);
    for (question, word) in ask.asked.iter().zip(words) {
        assert!(question.contains(word), "{question} is not about {word}");
    }
}

#[test]
fn several_machines_need_a_meeting_point() {
    let text = written(&[
        ("Which kind of machine", "multi-CPU"),
        ("How many machines", "4"),
        ("Which rank", "3"),
        ("address of the main machine", "10.0.0.1"),
        ("Which port", "29500"),
        ("same local network", "no"),
        ("rendezvous backend", "c10d"),
        ("checked while running", "yes"),
        ("How many processes", "16"),
    ]);
    has(
        &text,
        &[
            "distributed_type: MULTI_CPU",
            "num_machines: 4",
            "machine_rank: 3",
            "main_process_ip: 10.0.0.1",
            "main_process_port: 29500",
            "same_network: false",
            "rdzv_backend: c10d",
            "debug: true",
            "num_processes: 16",
            "use_cpu: true",
        ],
    );
    has_not(&text, &["gpu_ids", "mpirun_config"]);
}

#[test]
fn the_rank_is_typed_where_a_menu_would_be_too_long() {
    let answers = [
        ("Which kind of machine", "multi-CPU"),
        ("How many machines", "9000000000"),
        ("Which rank", "8999999999"),
        ("address of the main machine", "main"),
        ("Which port", "1"),
    ];
    has(&written(&answers), &["machine_rank: 8999999999"]);
}

#[test]
fn mpirun_starts_processes_on_cpus() {
    let text = written(&[
        ("Which kind of machine", "multi-CPU"),
        ("mpirun` start", "yes"),
        ("hostfile for `mpirun`", "/etc/mpi/hosts"),
    ]);
    assert_eq!(
        section(&text, "mpirun_config"),
        "mpirun_hostfile: /etc/mpi/hosts\n"
    );
}

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

#[test]
fn devices_are_listed_and_cores_pinned() {
    let text = written(&[
        ("Which kind of machine", "multi-GPU"),
        ("How many GPUs", "2"),
        ("Which GPUs", "0, 2"),
        ("CPU cores next to", "yes"),
    ]);
    has(&text, &["gpu_ids: 0,2", "enable_cpu_affinity: true"]);
}

#[test]
fn ids_are_asked_in_the_words_of_the_machine() {
    let machine = DeviceSummary {
        kind: DeviceKind::Neuron,
        count: 2,
    };
    let (_, ask) = interviewed(&[], machine);
    let words = "Which Neuron cores of this machine?";
    assert!(
        ask.asked.iter().any(|asked| asked == words),
        "{:?}",
        ask.asked
    );
}

#[test]
fn an_apple_gpu_has_neither_deepspeed_nor_ids() {
    let (record, ask) = interviewed(&[], APPLE);
    let text = yaml::write(&record.unwrap());
    has_not(&text, &["gpu_ids"]);
    let asked = ask.asked.join("\n");
    assert!(
        !asked.contains("DeepSpeed") && !asked.contains("cores"),
        "{asked}"
    );
    let (_, ask) = interviewed(&[("Stay on the CPU", "yes")], APPLE);
    assert!(
        ask.asked.join("\n").contains("DeepSpeed"),
        "the CPU is no Apple GPU"
    );
}

#[test]
fn a_tpu_runs_a_function_in_full_precision() {
    let text = written(&[
        ("Which kind of machine", "TPU"),
        ("How many TPU cores", "8"),
        ("Which function", "train"),
    ]);
    has(
        &text,
        &[
            "distributed_type: XLA",
            "num_processes: 8",
            "main_training_function: train",
            "mixed_precision: 'no'",
            "tpu_use_cluster: false",
            "tpu_env: []",
        ],
    );
    has_not(&text, &["tpu_vm", "tpu_name", "gpu_ids"]);
}

#[test]
fn a_pod_of_tpus_has_a_name_and_commands() {
    let pod = [
        ("Which kind of machine", "TPU"),
        ("TPU pod", "yes"),
        ("name of the pod", "big"),
        ("zone", "us-central1-a"),
        ("sudo", "yes"),
        ("at the start", "yes"),
    ];
    let commands = [
        ("Which command", "pip install a"),
        ("One more", "yes"),
        ("Which command", "pip install b"),
        ("VM instances", "one, two"),
        ("environment variables", "A=1,,B=2"),
    ];
    let text = written(&[pod.as_slice(), commands.as_slice()].concat());
    has(
        &text,
        &[
            "tpu_use_cluster: true",
            "tpu_use_sudo: true",
            "tpu_name: big",
            "tpu_zone: us-central1-a",
        ],
    );
    for list in [
        "commands:\n- pip install a\n- pip install b\n",
        "tpu_vm:\n- one\n- two\n",
        "tpu_env:\n- A=1\n- B=2\n",
    ] {
        assert!(text.contains(list), "no {list} in {text}");
    }
    let script = [
        ("shell script", "yes"),
        ("Where is the script", "/tmp/start.sh"),
    ];
    let text = written(&[pod.as_slice(), script.as_slice()].concat());
    has(
        &text,
        &["command_file: /tmp/start.sh", "tpu_vm: []", "tpu_env: []"],
    );
}

#[test]
fn fp8_asks_what_its_library_needs() {
    let text = written(&[("lower precision", "fp8")]);
    assert_eq!(
        section(&text, "fp8_config"),
        "backend: AO\nenable_fsdp_float8_all_gather: true\npad_inner_dim: true\n"
    );
    let text = written(&[("lower precision", "fp8"), ("Which library", "msamp")]);
    assert_eq!(
        section(&text, "fp8_config"),
        "backend: MSAMP\noptimization_level: O2\n"
    );
    let text = written(&[
        ("lower precision", "fp8"),
        ("Which library", "te"),
        ("margin", "2"),
        ("maxima counts", "most_recent"),
        ("some products", "yes"),
        ("`dgrad`", "yes"),
    ]);
    assert_eq!(
        section(&text, "fp8_config"),
        "amax_compute_algorithm: most_recent\namax_history_length: 1024\nbackend: TE\n\
         fp8_format: HYBRID\ninterval: 1\nmargin: 2\noverride_linear_precision:\n\
         - false\n- true\n- false\nuse_autocast_during_eval: false\n"
    );
}

#[test]
fn what_a_program_needs_is_remarked() {
    let answers = [("Use DeepSpeed", "yes"), ("lower precision", "fp8")];
    let (_, ask) = interviewed(&answers, DeviceSummary::CPU_ONLY);
    let remarks = ask.remarks.join("\n");
    assert!(
        remarks.contains("`deepspeed`") && remarks.contains("`torchao`"),
        "{remarks}"
    );
}

#[test]
fn one_gpu_is_no_distributed_training() {
    let answers = [("Which kind of machine", "multi-GPU")];
    let (record, _) = interviewed(&answers, DeviceSummary::CPU_ONLY);
    assert!(matches!(record, Err(ConfigCommandError::OneGpu)));
    // One per machine is fine, and so is one with a library that shards.
    has(
        &written(&[
            ("Which kind of machine", "multi-GPU"),
            ("How many machines", "2"),
            ("address of the main machine", "main"),
            ("Which port", "29500"),
        ]),
        &["distributed_type: MULTI_GPU", "num_processes: 1"],
    );
}

#[test]
fn neuron_runs_neither_deepspeed_nor_fsdp() {
    for library in ["Use DeepSpeed", "(FSDP)"] {
        let answers = [("Which kind of machine", "multi-NEURON"), (library, "yes")];
        let (record, _) = interviewed(&answers, DeviceSummary::CPU_ONLY);
        assert!(matches!(
            record,
            Err(ConfigCommandError::NotOnNeuron { .. })
        ));
    }
}
