//! What the machine has, and what its devices are asked for.

use super::*;

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
