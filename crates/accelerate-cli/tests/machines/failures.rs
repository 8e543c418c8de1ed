//! What the other machines do when something fails on one, and how a job starts again.

use crate::{
    command::{Done, wait_until},
    job::{Job, lines, together},
};

#[test]
fn the_code_of_the_rank_is_passed_on_by_its_machine_and_the_other_names_it() {
    for failing in [0, 1] {
        let job = Job::new(2);
        let body = format!("test $RANK != {failing} || exit 7; echo $$ > pid; exec sleep 100");
        let run = |rank| {
            let run = job.machine(rank, &["--num_processes", "2", "--grace_period", "5"]);
            run.args(["sh", "-c", &body])
        };
        let all = together([run(0), run(1)]);
        let other = &all[1 - failing];
        all[failing].assert_code(7);
        all[failing].assert_says(&format!("`sh` failed on rank {failing} of 2"));
        all[failing].assert_says("caused by: exit code 7");
        other.assert_code(1);
        other.assert_says(&format!("node {failing} ("));
        other.assert_says(&format!("rank {failing}"));
        other.assert_says("exit code 7");
        if job.folder().path("pid").exists() {
            assert_gone(&job.folder().read("pid"));
        }
    }
}

#[track_caller]
fn assert_gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    wait_until("a rank to end", || {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"))
    });
}

/// Kills the launcher of one machine with SIGKILL while the ranks run.
fn other_after_kill(killed: usize) -> Done {
    let job = Job::new(2);
    let body = "echo up; echo $$ > pid-$RANK; exec sleep 100";
    let run = |rank| {
        let run = job.machine(rank, &["--num_processes", "2", "--grace_period", "5"]);
        run.args(["sh", "-c", body]).start()
    };
    let mut machines = [run(0), run(1)];
    for machine in &machines {
        machine.wait_for_stdout("up");
    }
    machines[killed].kill();
    let [first, second] = machines;
    let [lost, other] = match killed {
        0 => [first, second],
        _ => [second, first],
    };
    assert_eq!(lost.done().code, None);
    let done = other.done();
    for rank in [0, 1] {
        assert_gone(&job.folder().read(&format!("pid-{rank}")));
    }
    done
}

#[test]
fn a_machine_whose_launcher_was_killed_ends_the_job() {
    let done = other_after_kill(1);
    done.assert_code(1).assert_says("node 1 (");
    // It kept the place where the others meet.
    let done = other_after_kill(0);
    done.assert_code(1).assert_says("127.0.0.1:");
}

#[test]
fn a_rank_that_fails_once_is_forgiven_with_a_restart() {
    for failing in [0, 1] {
        let job = Job::new(2);
        let body = format!(
            "echo rank $RANK attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS\n\
             test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0\n\
             test $RANK = {failing} && exit 3\nexec sleep 100"
        );
        let run = |rank| {
            let flags = ["--no_prefix", "--num_processes", "2", "--max_restarts", "1"];
            job.machine(rank, &flags).args(["sh", "-c", &body])
        };
        let all = together([run(0), run(1)]);
        for done in &all {
            done.assert_code(0).assert_says("1 of 1");
        }
        let expected = [
            "rank 0 attempt 0 of 1",
            "rank 0 attempt 1 of 1",
            "rank 1 attempt 0 of 1",
            "rank 1 attempt 1 of 1",
        ];
        // A rank that is ended at once may have said nothing.
        let found = lines(&all);
        assert!(
            found.iter().all(|line| expected.contains(&line.as_str())),
            "{found:?}"
        );
        assert!(
            expected[1..]
                .iter()
                .step_by(2)
                .all(|line| found.contains(&(*line).to_owned()))
        );
    }
}

#[test]
fn a_rank_that_keeps_failing_ends_the_job_when_no_restart_is_left() {
    let job = Job::new(2);
    let run = |rank| {
        let run = job.machine(rank, &["--num_processes", "2", "--max_restarts", "1"]);
        run.args(["sh", "-c", "test $RANK = 0 || exit 3; exec sleep 100"])
    };
    let [first, second] = together([run(0), run(1)]);
    second.assert_code(3);
    first.assert_code(1).assert_says("rank 1");
}

#[test]
fn restarts_without_numbers_of_machines() {
    let job = Job::new(2);
    let body = "echo rank $RANK attempt $TORCHELASTIC_RESTART_COUNT\n\
                test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0\n\
                test $RANK = 1 && exit 3\nexec sleep 100";
    let run = || {
        let flags = ["--no_prefix", "--num_processes", "2", "--max_restarts", "1"];
        let run = job.launcher(&flags).args(["--rdzv_backend", "c10d"]);
        run.args(["sh", "-c", body])
    };
    let all = together([run(), run()]);
    for done in &all {
        done.assert_code(0);
        done.assert_prints("attempt 1");
    }
}

#[test]
fn an_interrupt_on_one_machine_ends_the_job_on_all() {
    let job = Job::new(2);
    let run = |rank| {
        let flags = [
            "--num_processes",
            "2",
            "--max_restarts",
            "3",
            "--grace_period",
            "5",
        ];
        let run = job.machine(rank, &flags);
        run.args(["sh", "-c", "echo up; exec sleep 100"]).start()
    };
    let [first, second] = [run(0), run(1)];
    first.wait_for_stdout("up");
    second.wait_for_stdout("up");
    second.signal(rustix::process::Signal::TERM);
    second.done().assert_code(128 + 15);
    let first = first.done();
    first.assert_code(1).assert_says("node 1 (");
    assert_eq!(
        first.stdout.matches("up").count(),
        1,
        "no restart: {first:#?}"
    );
}

#[test]
fn a_signal_while_machines_are_missing_is_told_as_that() {
    let job = Job::new(2);
    let words = ["--num_processes", "2", "true"];
    let first = job.machine(0, &words).start();
    wait_until("the launcher to listen", || {
        std::net::TcpStream::connect(job.endpoint()).is_ok()
    });
    first.signal(rustix::process::Signal::TERM);
    let done = first.done();
    done.assert_code(143)
        .assert_says("error: stopped by SIGTERM while waiting for the other machines");

    let job = Job::new(2);
    let done = job.machine(0, &["--timeout", "0.2"]).args(words).done();
    done.assert_code(124)
        .assert_says("error: stopped after 0.2 s while waiting for the other machines");
}
