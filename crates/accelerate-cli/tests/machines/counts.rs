//! How many processes there are on which machine, and what happens where machines see it
//! differently.

use crate::{
    command::Folder,
    job::{Job, lines, together},
};

const BODY: [&str; 3] = [
    "sh",
    "-c",
    "echo $GROUP_RANK/$GROUP_WORLD_SIZE rank $RANK/$WORLD_SIZE local \
     $LOCAL_RANK/$LOCAL_WORLD_SIZE at $MASTER_ADDR",
];

/// What the ranks print on two machines that get these flags.
fn ranks(first: &[&str], second: &[&str]) -> Vec<String> {
    let job = Job::new(2);
    let run = |rank, words: &[&str]| job.machine(rank, &["--no_prefix"]).args(words).args(BODY);
    let all = together([run(0, first), run(1, second)]);
    for done in &all {
        done.assert_code(0);
    }
    lines(&all)
}

const ONE_AND_TWO: [&str; 3] = [
    "0/2 rank 0/3 local 0/1 at 127.0.0.1",
    "1/2 rank 1/3 local 0/2 at 127.0.0.1",
    "1/2 rank 2/3 local 1/2 at 127.0.0.1",
];

#[test]
fn equal_counts() {
    let flags = ["--num_processes", "4"];
    assert_eq!(
        ranks(&flags, &flags),
        [
            "0/2 rank 0/4 local 0/2 at 127.0.0.1",
            "0/2 rank 1/4 local 1/2 at 127.0.0.1",
            "1/2 rank 2/4 local 0/2 at 127.0.0.1",
            "1/2 rank 3/4 local 1/2 at 127.0.0.1",
        ]
    );
}

#[test]
fn a_different_count_on_each_machine() {
    let count = |count| ["--num_processes_per_machine", count];
    assert_eq!(ranks(&count("1"), &count("2")), ONE_AND_TWO);
    // The total may be said too.
    let count = |count| ["--num_processes", "3", "--num_processes_per_machine", count];
    assert_eq!(ranks(&count("1"), &count("2")), ONE_AND_TWO);
}

#[test]
fn a_total_that_is_not_even_gives_the_first_machine_one_more() {
    let flags = ["--num_processes", "3"];
    assert_eq!(
        ranks(&flags, &flags),
        [
            "0/2 rank 0/3 local 0/2 at 127.0.0.1",
            "0/2 rank 1/3 local 1/2 at 127.0.0.1",
            "1/2 rank 2/3 local 0/1 at 127.0.0.1",
        ]
    );
}

#[test]
fn three_machines_in_any_order() {
    let job = Job::new(3);
    let run = |rank| {
        let run = job.machine(rank, &["--no_prefix", "--num_processes", "3"]);
        run.args(["sh", "-c", "echo $RANK of $WORLD_SIZE on $GROUP_RANK"])
    };
    let all = together([run(2), run(1), run(0)]);
    for (done, rank) in all.iter().zip([2, 1, 0]) {
        done.assert_code(0);
        assert_eq!(done.stdout, format!("{rank} of 3 on {rank}\n"));
    }
}

#[test]
fn machines_without_numbers_get_them() {
    let job = Job::new(2);
    let run = || {
        let flags = [
            "--no_prefix",
            "--rdzv_backend",
            "c10d",
            "--num_processes",
            "2",
        ];
        let run = job.launcher(&flags);
        run.args(["sh", "-c", "echo $RANK of $WORLD_SIZE on $GROUP_RANK"])
    };
    let all = together([run(), run()]);
    for done in &all {
        done.assert_code(0);
    }
    assert_eq!(lines(&all), ["0 of 2 on 0", "1 of 2 on 1"]);
}

/// Two machines that cannot work together: both say why and start nothing. Who came first is told
/// first.
#[track_caller]
fn assert_refused(first: &[&str], second: &[&str], difference: &[&str]) {
    let job = Job::new(2);
    let run = |rank: &str, words: &[&str]| {
        let run = job.launcher(&["--machine_rank", rank]).args(words);
        run.args(["sh", "-c", "touch started"])
    };
    let second_rank = match second.contains(&"--machine_rank") {
        true => "0",
        false => "1",
    };
    let all = together([run("0", first), run(second_rank, second)]);
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    for done in &all {
        done.assert_code(1).assert_says("the nodes do not agree");
        for part in difference {
            done.assert_says(&part.replace("HOST", host));
        }
    }
    assert!(!job.folder().path("started").exists());
}

#[test]
fn machines_that_see_the_job_differently_fail_together() {
    let total = |total| ["--num_processes", total];
    assert_refused(
        &total("4"),
        &total("2"),
        &[
            "`num_processes` is ",
            "4 on node 0 (HOST)",
            "2 on node 1 (HOST)",
        ],
    );
    assert_refused(
        &["--num_processes", "2"],
        &["--num_processes", "2", "--mixed_precision", "bf16"],
        &[
            "`mixed_precision` is ",
            "no on node 0 (HOST)",
            "bf16 on node 1 (HOST)",
        ],
    );
    assert_refused(
        &["--num_processes", "3", "--num_processes_per_machine", "1"],
        &["--num_processes", "3", "--num_processes_per_machine", "1"],
        &["`num_processes` is 3, but the nodes start 1 + 1 = 2"],
    );
    assert_refused(
        &["--num_processes", "2"],
        &["--num_processes", "2", "--machine_rank", "0"],
        &["`machine_rank` 0 is given to HOST and HOST"],
    );
    assert_refused(
        &["--num_processes", "4"],
        &["--num_processes", "4", "--num_machines", "3"],
        &[
            "`num_machines` is ",
            "2 on node 0 (HOST)",
            "3 on node 1 (HOST)",
        ],
    );
    assert_refused(
        &["--num_processes", "2", "--max_restarts", "1"],
        &["--num_processes", "2"],
        &[
            "`max_restarts` is ",
            "1 on node 0 (HOST)",
            "0 on node 1 (HOST)",
        ],
    );
}

#[test]
fn programs_that_differ_are_refused() {
    let job = Job::new(2);
    let flags = ["--num_processes", "2"];
    let first = job.machine(0, &flags).args(["sh", "-c", "touch started"]);
    let second = job.machine(1, &flags).args(["touch", "started"]);
    for done in together([first, second]) {
        done.assert_code(1).assert_says("`program` is sh on node 0");
    }
    assert!(!job.folder().path("started").exists());
}

#[test]
fn a_dry_run_says_what_is_known_and_waits_for_nobody() {
    let job = Job::new(2);
    let run = job.machine(1, &["--num_processes", "3", "--dry_run", "sh"]);
    let done = run.done();
    done.assert_code(0);
    for line in [
        "machine_rank = 1  (flag `--machine_rank`)",
        "processes on this machine: 1",
        &format!("machines: 2, which meet at {}", job.endpoint()),
        "  RANK: agreed when the machines have met",
        "  LOCAL_RANK=0",
    ] {
        done.assert_prints(line);
    }
}

/// A file for FSDP.
fn fsdp(folder: &Folder, version: &str) -> String {
    let text = format!("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: {version}\n");
    let path = folder.write(&format!("fsdp_{version}.yaml"), &text);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_kind_of_job_and_what_processes_are_told_are_compared() {
    let folder = Folder::new();
    let [one, two] = ["1", "2"].map(|version| fsdp(&folder, version));
    let flags = |file| ["--num_processes", "2", "--config_file", file];
    assert_refused(
        &flags(&two),
        &["--num_processes", "2"],
        &[
            "`strategy` is ",
            "FSDP on node 0 (HOST)",
            "plain on node 1 (HOST)",
        ],
    );
    assert_refused(
        &flags(&two),
        &flags(&one),
        &[
            "`fsdp_version` is ",
            "2 on node 0 (HOST)",
            "1 on node 1 (HOST)",
        ],
    );
}

#[test]
fn what_follows_from_another_kind_of_job_is_not_told() {
    let job = Job::new(2);
    let file = fsdp(job.folder(), "2");
    let flags = ["--num_processes", "2"];
    let first = job.machine(0, &flags).args(["--config_file", &file]);
    let second = job.machine(1, &flags);
    for done in together([first, second].map(|run| run.args(["true"]))) {
        done.assert_code(1).assert_says("`strategy` is ");
        assert!(!done.stderr.contains("fsdp_version"), "{done:#?}");
    }
}

#[test]
fn without_numbers_of_machines_the_total_is_even() {
    let job = Job::new(2);
    let run = |words: &[&str]| {
        let flags = [
            "--rdzv_backend",
            "c10d",
            "--num_processes",
            "3",
            "--dry_run",
        ];
        job.launcher(&flags).args(words).args(["true"]).done()
    };
    let done = run(&[]);
    done.assert_code(2).assert_says(
        "`num_processes` is `3` (flag `--num_processes`): expected a multiple of `num_machines` (2)",
    );
    done.assert_says("--num_processes_per_machine");
    run(&["--num_processes_per_machine", "1"]).assert_code(0);
    run(&["--machine_rank", "1"]).assert_code(0);
}

#[test]
fn quiet_machines_say_nothing_when_they_meet() {
    let job = Job::new(2);
    let run = |rank, flag| {
        let run = job.machine(rank, &["--num_processes", "2", "--debug", flag]);
        run.args(["true"])
    };
    let [quiet, other] = together([run(0, "-q"), run(1, "--debug")]);
    assert_eq!(quiet.assert_code(0).stderr, "");
    other.assert_code(0).assert_says("the machines have met");
}

#[test]
fn what_a_machine_needs_is_asked_for_by_name() {
    let folder = Folder::new();
    let run = |words: &[&str]| {
        let run = folder.launch(["--cpu", "--num_machines", "2", "--num_processes", "2"]);
        run.args(words).args(["true"]).done()
    };
    run(&["--main_process_ip", "127.0.0.1"])
        .assert_code(2)
        .assert_says("hint: give `--machine_rank`, another one on each machine, from 0");
    run(&["--machine_rank", "0"])
        .assert_code(2)
        .assert_says("hint: give `--main_process_ip`, the same on every machine");
}
