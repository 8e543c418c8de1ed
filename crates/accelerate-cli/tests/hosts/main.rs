//! Other people's launchers under ours: what they start ends with them, and they end with us.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../launch/launcher.rs"]
mod launcher;

use launcher::{Folder, Launch};
use rustix::process::Signal;

/// `mpirun` of Open MPI with two ranks that run a script, under our launcher; `None`, with the
/// reason on stderr, where it is not installed.
fn open_mpi(folder: &Folder, body: &str) -> Option<Launch> {
    let version = std::process::Command::new("mpirun")
        .arg("--version")
        .output();
    let is_open_mpi =
        version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Open MPI"));
    if !is_open_mpi {
        eprintln!("skipped: Open MPI is not installed on this machine");
        return None;
    }
    let rank = folder.script("rank", body);
    std::fs::write(folder.path("hosts"), "localhost slots=2\n").unwrap();
    let launch = folder
        .launch()
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .args([
            "--cpu",
            "--quiet",
            "--num_processes",
            "1",
            "--grace_period",
            "5",
        ])
        .args(["mpirun", "--hostfile", "hosts", "-n", "2"])
        .args([rank]);
    Some(launch)
}

#[test]
fn the_code_of_a_rank_of_open_mpi_is_passed_on() {
    let folder = Folder::new();
    let body = r#"test "$OMPI_COMM_WORLD_RANK" = 0 || exit 5"#;
    if let Some(launch) = open_mpi(&folder, body) {
        launch.run().assert_code(5);
    }
}

#[test]
fn the_ranks_of_open_mpi_end_with_the_launcher_however_it_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let folder = Folder::new();
        let body = "echo $$ >> pids; while :; do sleep 0.1; done";
        let Some(launch) = open_mpi(&folder, body) else {
            return;
        };
        let running = launch.start();
        let ranks = folder.pids("pids", 2);
        running.signal(signal);
        let done = running.wait();
        assert!(!done.status.success(), "{done:?}");
        launcher::wait_until_gone(&ranks);
    }
}
