mod devices;
mod plugins;

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
