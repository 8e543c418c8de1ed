//! `mpirun_config`: MPI starts the ranks.

use crate::command::{Done, Folder};

const CONFIG: &str = "\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_CPU
main_process_ip: 10.0.0.1
main_process_port: 29600
mixed_precision: bf16
mpirun_config:
  mpirun_ccl: '3'
  mpirun_hostfile: hosts
num_machines: 2
num_processes: 4
use_cpu: true
";

/// Writes down its words and variables, and returns 7.
const STAND_IN: &str = "\
if test \"$1\" = --version; then echo \"$MPI_NAME\"; exit; fi
printf '%s\\n' \"$@\" > words
env > variables
exit 7";

const OPEN_MPI: &str = "mpirun (Open MPI) 4.1.4";
const INTEL_MPI: &str = "Intel(R) MPI Library for Linux* OS, Version 2021.13";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("job.yaml", CONFIG);
    folder.write("hosts", "w0 slots=2\nw1 slots=2\n");
    folder.program("mpirun", STAND_IN);
    folder
}

fn launch(folder: &Folder, mpi: &str, words: &[&str]) -> Done {
    let run = folder.launch(["--config_file", "job.yaml"]).args(words);
    let run = run.args(["sh", "train.sh", "--name", "a b"]);
    let run = run.env("MPI_NAME", mpi).env("OMP_NUM_THREADS", "2");
    let run = run.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    run.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").done()
}

fn words(folder: &Folder) -> Vec<String> {
    folder.read("words").lines().map(str::to_owned).collect()
}

#[test]
fn the_command_follows_the_mpi_that_is_there() {
    let folder = site();
    launch(&folder, INTEL_MPI, &[]).assert_code(7);
    let found = words(&folder);
    assert_eq!(found[..6], ["-f", "hosts", "-ppn", "2", "-n", "4"]);
    assert!(found[6].ends_with("/sh"), "{found:?}");
    assert_eq!(found[7..], ["train.sh", "--name", "a b"]);

    let done = launch(&folder, OPEN_MPI, &[]);
    done.assert_code(7)
        .assert_says("`sh through mpirun` failed");
    done.assert_says("starts the processes (Open MPI)");
    let found = words(&folder);
    let expected = [
        "--hostfile",
        "hosts",
        "--npernode",
        "2",
        "-n",
        "4",
        "--bind-to",
        "socket",
    ];
    assert_eq!(found[..8], expected);
    // It passes on to other machines what is named.
    for name in [
        "ACCELERATE_MIXED_PRECISION",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CCL_WORKER_COUNT",
    ] {
        let place = found.iter().position(|word| word == name);
        assert!(
            place.is_some_and(|place| found[place - 1] == "-x"),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn the_ranks_are_told_where_they_meet_and_how_to_compute() {
    let folder = site();
    launch(&folder, INTEL_MPI, &["--mixed_precision", "fp16"]).assert_code(7);
    let variables = folder.read("variables");
    for line in [
        "ACCELERATE_MIXED_PRECISION=fp16",
        "ACCELERATE_USE_CPU=True",
        "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=29600",
        "CCL_WORKER_COUNT=3",
        "OMP_NUM_THREADS=2",
    ] {
        assert!(
            variables.lines().any(|found| found == line),
            "{line}: {variables}"
        );
    }
    // Who they are is told by MPI.
    assert!(
        !variables.lines().any(|line| line.starts_with("RANK=")),
        "{variables}"
    );
}

#[test]
fn a_flag_is_enough_and_numbers_follow_it() {
    let folder = site();
    let run = folder.launch([
        "--cpu",
        "--mpirun_hostfile",
        "hosts",
        "--num_processes",
        "3",
    ]);
    let run = run.args(["sh", "train.sh"]).env("MPI_NAME", INTEL_MPI);
    run.done().assert_code(7);
    assert_eq!(words(&folder)[..6], ["-f", "hosts", "-ppn", "3", "-n", "3"]);
    let variables = folder.read("variables");
    assert!(variables.contains("MASTER_ADDR=127.0.0.1\n"), "{variables}");
    assert!(variables.contains("OMP_NUM_THREADS="), "{variables}");
}

#[test]
fn a_dry_run_shows_the_command_and_runs_nothing() {
    let folder = site();
    let done = launch(&folder, INTEL_MPI, &["--dry_run"]);
    done.assert_code(0);
    for line in [
        "mpirun_hostfile = hosts  (job.yaml:8)",
        "mpirun_ccl = 3  (job.yaml:7)",
        "started and numbered by `",
        "environment of the command:",
        "  MASTER_ADDR=10.0.0.1",
        "/bin/mpirun -f hosts -ppn 2 -n 4 ",
        " train.sh --name 'a b'\n",
    ] {
        done.assert_prints(line);
    }
    assert!(!folder.path("words").exists());
}

#[test]
fn what_is_missing_is_said() {
    let folder = site();
    let done = launch(&folder, INTEL_MPI, &["--mpirun_hostfile", "no/hosts"]);
    done.assert_code(1)
        .assert_says("cannot read the hostfile `no/hosts`");
    std::fs::remove_file(folder.path("bin/mpirun")).unwrap();
    for tool in ["sh", "env", "printf"] {
        folder.program(tool, "exit 0");
    }
    let run = folder.launch(["--config_file", "job.yaml", "sh"]);
    let done = run.env("PATH", folder.path("bin")).done();
    done.assert_code(1)
        .assert_says("neither `mpirun` nor `mpiexec` is on the search path");
    done.assert_says("hint: install Open MPI");
}

#[test]
fn on_one_machine_the_ranks_meet_at_a_free_port() {
    let folder = site();
    let config = CONFIG.replace("main_process_ip: 10.0.0.1\nmain_process_port: 29600\n", "");
    folder.write(
        "job.yaml",
        &config.replace("num_machines: 2", "num_machines: 1"),
    );
    let port = || {
        launch(&folder, INTEL_MPI, &[]).assert_code(7);
        let variables = folder.read("variables");
        let mut lines = variables.lines();
        assert!(lines.clone().any(|line| line == "MASTER_ADDR=127.0.0.1"));
        let port = lines.find_map(|line| line.strip_prefix("MASTER_PORT="));
        port.unwrap().parse::<u16>().unwrap()
    };
    let (first, second) = (port(), port());
    assert_ne!((first, second), (29500, 29500));
    launch(&folder, INTEL_MPI, &["--main_process_port", "29611"]).assert_code(7);
    assert!(folder.read("variables").contains("MASTER_PORT=29611\n"));
}
