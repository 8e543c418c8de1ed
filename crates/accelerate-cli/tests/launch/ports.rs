//! Ports: chosen without a race, refused at once when taken.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use crate::launcher::{Folder, wait_until};

/// Not a test by itself: two ranks meet at the port, as they do for a process group.
#[test]
fn as_a_rank_meet_the_other() {
    let Ok(job) = std::env::var("MEET_AS_JOB") else {
        return;
    };
    let port: u16 = std::env::var("MASTER_PORT").unwrap().parse().unwrap();
    if std::env::var("RANK").unwrap() == "0" {
        let server = TcpListener::bind(("0.0.0.0", port)).unwrap();
        let (mut peer, _) = server.accept().unwrap();
        let mut name = String::new();
        peer.read_to_string(&mut name).unwrap();
        assert_eq!(name, job, "a rank of another job came");
    } else {
        let mut stream = None;
        wait_until("rank 0", || {
            stream = TcpStream::connect(("127.0.0.1", port)).ok();
            stream.is_some()
        });
        stream.unwrap().write_all(job.as_bytes()).unwrap();
    }
}

#[test]
fn eight_jobs_at_the_same_moment_do_not_meet_each_other() {
    let folders: Vec<_> = (0..8).map(|_| Folder::new()).collect();
    let program = std::env::current_exe().unwrap();
    let jobs: Vec<_> = folders
        .iter()
        .enumerate()
        .map(|(job, folder)| {
            let test = ["--exact", "ports::as_a_rank_meet_the_other"];
            let launch = folder.launch().env("MEET_AS_JOB", &job.to_string());
            launch
                .args(["--quiet", "--num_processes=2"])
                .args([&program])
                .args(test)
                .start()
        })
        .collect();
    for job in jobs {
        job.wait().assert_code(0);
    }
}

#[test]
fn a_busy_port_is_refused_before_anything_starts() {
    let folder = Folder::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let script = folder.script("rank", "touch started");
    let flags = ["--num_processes=2", "--main_process_port", &port];
    let done = folder.launch().args(flags).args([script]).run();
    done.assert_code(1);
    assert!(
        done.stderr
            .contains(&format!("error: port {port} is in use")),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("hint: "), "{}", done.stderr);
    assert!(!folder.path("started").exists());
}

#[test]
fn an_explicit_port_can_be_used_again_at_once() {
    let folder = Folder::new();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let program = std::env::current_exe().unwrap();
    let flags = ["--quiet", "--num_processes=2", "--main_process_port", &free];
    for _ in 0..3 {
        let launch = folder
            .launch()
            .env("MEET_AS_JOB", "again")
            .args(flags)
            .args([&program]);
        launch
            .args(["--exact", "ports::as_a_rank_meet_the_other"])
            .run()
            .assert_code(0);
    }
}

#[test]
fn a_port_of_a_running_launcher_is_refused() {
    let folder = Folder::new();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let script = folder.script(
        "rank",
        "echo $$ >> pids; while ! test -e go; do sleep 0.01; done",
    );
    let launch = || {
        let flags = ["--num_processes=2", "--main_process_port", &free];
        folder.launch().args(flags).args([&script])
    };
    let first = launch().start();
    folder.pids("pids", 2);
    let second = launch().run();
    second.assert_code(1);
    assert!(
        second.stderr.contains(&format!("port {free}")),
        "{}",
        second.stderr
    );
    std::fs::write(folder.path("go"), "").unwrap();
    first.wait().assert_code(0);
}
