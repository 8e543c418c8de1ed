//! CPUs: shared out among ranks, and bound to them.

use std::{
    process::{Command, Stdio},
    thread,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::launcher::Folder;

fn first_cpu() -> usize {
    let usable = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU)
        .find(|cpu| usable.is_set(*cpu))
        .unwrap()
}

#[test]
fn a_keeper_binds_its_program_to_the_cpus_it_was_given() {
    let cpu = first_cpu();
    let run = |cpus: &str| {
        let us = std::process::id();
        let terms = format!(
            r#"{{"launcher": {us}, "grace": {{"secs": 1, "nanos": 0}}, "cpus": [{cpus}]}}"#
        );
        let program = ["grep", "Cpus_allowed_list", "/proc/self/status"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_accelerate"));
        command
            .args(["__rank", &terms])
            .args(program)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            text.split('\t').next_back().unwrap().trim().to_owned(),
            errors,
        )
    };
    let all = run("").0;
    assert_eq!(run(&cpu.to_string()), (cpu.to_string(), String::new()));
    // A CPU that does not exist must not keep a program from running.
    let (cpus, errors) = run("1000");
    assert_eq!(cpus, all);
    assert!(
        errors.contains("warning: cannot bind a rank to CPUs 1000"),
        "{errors}"
    );
}

#[test]
fn a_launcher_bound_to_one_cpu_gives_one_thread_to_each_rank() {
    let folder = Folder::new();
    let script = folder.script(
        "rank",
        "echo $OMP_NUM_THREADS; grep Cpus_allowed_list /proc/self/status",
    );
    let cpu = first_cpu();
    // Only the thread is bound, and what it starts.
    let done = thread::spawn(move || {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).unwrap();
        let flags = ["--no_prefix", "--num_processes=2"];
        folder.launch().args(flags).args([script]).run()
    });
    let done = done.join().unwrap();
    let bound = format!("Cpus_allowed_list:\t{cpu}");
    assert_eq!(done.lines(), ["1", "1", &bound, &bound]);
    assert!(
        done.stderr.contains("usable cores: 1, processes: 2"),
        "{}",
        done.stderr
    );
}
