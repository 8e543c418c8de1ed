//! The original's self-test scripts, on two processes on the CPU, with the settings given in each
//! of the ways that there are.

use std::{ffi::OsStr, path::Path, process::Command};

use accelerate_testkit::parity_python;

use crate::{
    original::{one_at_a_time, parity_file, script},
    ours::{Done, Home},
};

/// How the launcher learns that two processes on the CPU are wanted.
#[derive(Debug, Clone, Copy)]
enum Way {
    Flags,
    File,
    /// The user's default file, which nobody names.
    DefaultFile,
    Environment,
}

/// As the original's questionnaire writes it for such a job.
const FILE: &str = "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
";

impl Way {
    fn launch(self, home: &Home) -> Command {
        let mut command = home.accelerate();
        command.arg("launch");
        match self {
            Self::Flags => {
                command.args(["--cpu", "--num_processes", "2"]);
            }
            Self::File => {
                command
                    .arg("--config_file")
                    .arg(home.write("job.yaml", FILE));
            }
            Self::DefaultFile => {
                std::fs::create_dir(home.path("accelerate")).unwrap();
                home.write("accelerate/default_config.yaml", FILE);
                command.env("HF_HOME", home.path(""));
            }
            Self::Environment => {
                command
                    .env("ACCELERATE_USE_CPU", "true")
                    .env("ACCELERATE_NUM_PROCESSES", "2");
            }
        }
        command
    }
}

/// Runs it and demands that it ends well.
fn run<S: AsRef<OsStr>>(way: Way, python: &Path, program: &[S]) -> Done {
    let _turn = one_at_a_time();
    let home = Home::new();
    let mut command = way.launch(&home);
    command.env("PYTHON_EXEC", python).args(program);
    Done::of(&command.output().unwrap()).assert_code(0)
}

/// Both processes are one group, on Gloo.
#[track_caller]
fn assert_group_of_two(done: &Done) {
    for rank in 0..2 {
        for line in [
            "Distributed environment: DistributedType.MULTI_CPU  Backend: gloo".to_owned(),
            "Num processes: 2".to_owned(),
            format!("Process index: {rank}"),
            "Device: cpu:0".to_owned(),
        ] {
            let line = format!("0:{rank} {line}\n");
            assert!(done.stdout.contains(&line), "no {line:?} in {done:#?}");
        }
    }
}

fn main_script_passes(test: &str, way: Way) {
    let Some(python) = parity_python(test) else {
        return;
    };
    let done = run(way, &python, &[script(&python, "test_script.py")]);
    assert_group_of_two(&done);
    for part in [
        "All rng are properly synched.",
        "Shuffled dataloader passing.",
        "Training yielded the same results on one CPU or distributed setup with batch split.",
        "**Breakpoint trigger test**",
    ] {
        assert!(done.stdout.contains(part), "no {part:?} in {done:#?}");
    }
}

#[test]
fn parity_main_script_by_flags() {
    main_script_passes("parity_main_script_by_flags", Way::Flags);
}

#[test]
fn parity_main_script_by_file() {
    main_script_passes("parity_main_script_by_file", Way::File);
}

#[test]
fn parity_main_script_by_environment() {
    main_script_passes("parity_main_script_by_environment", Way::Environment);
}

#[test]
fn parity_script_of_gradient_accumulation_by_default_file() {
    let Some(python) = parity_python("parity_script_of_gradient_accumulation_by_default_file")
    else {
        return;
    };
    let done = run(
        Way::DefaultFile,
        &python,
        &[script(&python, "test_sync.py")],
    );
    let last = "0:0 **Test `accumulate` gradient accumulation with optimizer and scheduler";
    assert!(done.stdout.contains(last), "{done:#?}");
    let both = |rank| done.stdout.contains(&format!("0:{rank} Model dtype:"));
    assert!(both(0) && both(1), "{done:#?}");
}

/// The script asks for its state without naming the CPU. The original then sees a single process in
/// each of the two, whatever launches it; with the state set up for the CPU before, it sees both.
#[test]
fn parity_script_of_collectives_by_file_and_environment() {
    let Some(python) = parity_python("parity_script_of_collectives_by_file_and_environment") else {
        return;
    };
    let path = script(&python, "test_ops.py");
    let last = "0:0 testing sending tensors across devices\n";
    let plain = run(Way::File, &python, &[&path]);
    assert!(plain.stdout.contains(last), "{plain:#?}");
    assert!(
        plain.stdout.contains("0:1 Num processes: 1\n"),
        "{plain:#?}"
    );
    let group = run(Way::Environment, &python, &[parity_file("on_cpu.py"), path]);
    assert!(group.stdout.contains(last), "{group:#?}");
    assert!(
        group.stdout.contains("0:0 Num processes: 2\n"),
        "{group:#?}"
    );
}

#[test]
fn parity_script_of_the_command_line_as_a_module() {
    let Some(python) = parity_python("parity_script_of_the_command_line_as_a_module") else {
        return;
    };
    let program = ["-m", "accelerate.test_utils.scripts.test_cli"];
    let done = run(Way::Flags, &python, &program);
    for rank in 0..2 {
        let line = format!("0:{rank} Successfully ran on 0 GPUs\n");
        assert!(done.stdout.contains(&line), "{done:#?}");
    }
}

/// The interpreter of an activated environment is found without being named.
#[test]
fn parity_script_of_the_command_line_in_an_environment() {
    let Some(python) = parity_python("parity_script_of_the_command_line_in_an_environment") else {
        return;
    };
    let path = script(&python, "test_cli.py");
    let _turn = one_at_a_time();
    let home = Home::new();
    let environment = python.parent().unwrap().parent().unwrap();
    let mut command = Way::Environment.launch(&home);
    command.env("VIRTUAL_ENV", environment).arg(path);
    let done = Done::of(&command.output().unwrap()).assert_code(0);
    let lines = done.stdout.matches("Successfully ran on").count();
    assert_eq!(lines, 2, "{done:#?}");
}
