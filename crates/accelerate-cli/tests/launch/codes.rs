//! What the launcher tells its processes, and what it returns.

use crate::launcher::Folder;

#[test]
fn the_code_of_the_first_failing_rank_is_passed_on() {
    let folder = Folder::new();
    let script = folder.script("rank", r#"test "$RANK" = 1 && exit 7; exec sleep 600"#);
    let done = folder
        .launch()
        .args(["--num_processes", "2"])
        .args([script])
        .run();
    done.assert_code(7);
    assert!(
        done.stderr.contains("`rank` failed on rank 1 of 2"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("exit code 7"), "{}", done.stderr);
}

#[test]
fn a_kill_gives_128_and_the_signal() {
    let folder = Folder::new();
    let script = folder.script(
        "rank",
        r#"test "$RANK" = 0 && kill -SEGV $$; exec sleep 600"#,
    );
    let done = folder
        .launch()
        .args(["--num_processes", "2"])
        .args([script])
        .run();
    done.assert_code(128 + 11);
    assert!(done.stderr.contains("killed by SIGSEGV"), "{}", done.stderr);
}

#[test]
fn a_single_process_passes_on_code_and_signal_too() {
    let folder = Folder::new();
    folder
        .launch()
        .args(["sh", "-c", "exit 3"])
        .run()
        .assert_code(3);
    folder.launch().args(["true"]).run().assert_code(0);
    let done = folder.launch().args(["sh", "-c", "kill -KILL $$"]).run();
    done.assert_code(128 + 9);
    assert!(
        done.stderr.contains("hint: ") && done.stderr.contains("memory"),
        "{}",
        done.stderr
    );
}

#[test]
fn the_report_shows_the_last_lines_of_the_rank_that_failed() {
    let folder = Folder::new();
    let body = r#"
        if test "$RANK" = 1; then echo "disk is on fire" >&2; exit 4; fi
        trap 'echo "rank 0 stops" >&2; exit 1' TERM
        while :; do sleep 0.05; done"#;
    let script = folder.script("rank", body);
    let done = folder
        .launch()
        .args(["--num_processes", "2", "--no_prefix"])
        .args([script])
        .run();
    done.assert_code(4);
    let report = &done.stderr[done.stderr.find("error:").unwrap()..];
    assert!(
        report.contains("last lines of rank 1 on stderr:\n    disk is on fire\n"),
        "{report}"
    );
    assert!(!report.contains("rank 0 stops"), "{report}");
}

#[test]
fn quiet_leaves_stderr_to_the_ranks() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo own >&2; exit 5");
    let done = folder
        .launch()
        .args(["--quiet", "--num_processes=1"])
        .args([script])
        .run();
    done.assert_code(5);
    assert_eq!(done.stderr, "own\n");
}

#[test]
fn a_wrong_command_line_is_code_2_and_a_missing_program_code_1() {
    let folder = Folder::new();
    folder
        .launch()
        .args(["--bogus", "true"])
        .run()
        .assert_code(2);
    folder.launch().run().assert_code(2);
    folder
        .launch()
        .args(["--module", "--no_python", "x"])
        .run()
        .assert_code(2);
    let filter = [
        "--num_processes",
        "2",
        "--local_ranks_filter",
        "0,2",
        "true",
    ];
    folder.launch().args(filter).run().assert_code(2);
    let done = folder.launch().args(["./missing"]).run();
    done.assert_code(1);
    assert!(
        done.stderr.starts_with("error: no program `./missing`"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("\nhint: "), "{}", done.stderr);
}

#[test]
fn a_program_that_cannot_run_is_named() {
    let folder = Folder::new();
    let script = folder.path("broken");
    std::fs::copy(folder.script("model", "true"), &script).unwrap();
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let done = folder.launch().args([script]).run();
    done.assert_code(127);
    assert!(
        done.stderr.contains("error: cannot run `"),
        "{}",
        done.stderr
    );
}

#[test]
fn each_rank_is_told_its_place() {
    let folder = Folder::new();
    let names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT \
                 ACCELERATE_USE_CPU ACCELERATE_MIXED_PRECISION ACCELERATE_DEBUG_MODE \
                 ACCELERATE_GRADIENT_ACCUMULATION_STEPS OMP_NUM_THREADS \
                 TORCHELASTIC_USE_AGENT_STORE";
    let body =
        format!("for n in {names}; do eval \"v=\\$$n\"; line=\"$line $v\"; done; echo $line");
    let script = folder.script("rank", &body);
    let flags = [
        "--cpu",
        "--quiet",
        "--no_prefix",
        "--num_processes=2",
        "--main_process_ip=localhost",
        "--mixed-precision=bf16",
        "--debug",
        "--gradient_accumulation_steps=4",
        "--num_cpu_threads_per_process=3",
    ];
    let done = folder
        .launch()
        .env("RANK", "9")
        .args(flags)
        .args([script])
        .run();
    done.assert_code(0);
    let lines = done.lines();
    let port: u16 = lines[0].split(' ').nth(6).unwrap().parse().unwrap();
    assert_ne!(port, 0);
    assert_eq!(
        lines[0],
        format!("0 0 2 2 0 localhost {port} True bf16 true 4 3 False")
    );
    assert_eq!(
        lines[1],
        format!("1 1 2 2 0 localhost {port} True bf16 true 4 3 False")
    );
}

#[test]
fn a_single_process_keeps_what_an_outer_launcher_says() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo $PMI_RANK $RANK.");
    let done = folder
        .launch()
        .env("PMI_RANK", "3")
        .args(["--cpu"])
        .args([script])
        .run();
    assert_eq!(done.stdout, "3 .\n");
}

#[test]
fn threads_are_shared_out_once_and_the_user_wins() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo $OMP_NUM_THREADS");
    let cores = std::thread::available_parallelism().unwrap().get();
    for processes in [1, 2, 4] {
        let count = processes.to_string();
        let flags = ["--no_prefix", "--num_processes", &count];
        let done = folder.launch().args(flags).args([&script]).run();
        let expected = (cores / processes).max(1).to_string();
        assert_eq!(done.lines(), vec![expected.as_str(); processes]);
        assert_eq!(
            done.stderr.matches("num_cpu_threads_per_process").count(),
            1
        );

        let done = folder
            .launch()
            .env("OMP_NUM_THREADS", "5")
            .args(flags)
            .args([&script])
            .run();
        assert_eq!(done.lines(), vec!["5"; processes]);
        assert_eq!(done.stderr, "");
    }
}

#[test]
fn without_a_number_of_processes_the_choice_is_told() {
    let folder = Folder::new();
    let done = folder.launch().args(["--cpu", "true"]).run();
    done.assert_code(0);
    assert!(
        done.stderr.contains("`--num_processes` was set to `1`"),
        "{}",
        done.stderr
    );
    let script = folder.script("rank", "echo $RANK");
    let flags = ["--quiet", "--no_prefix"];
    let done = folder
        .launch()
        .env("ACCELERATE_NUM_PROCESSES", "3")
        .args(flags)
        .args([script]);
    assert_eq!(done.run().lines(), ["0", "1", "2"]);
}

#[test]
fn arguments_reach_the_program_untouched() {
    let folder = Folder::new();
    let script = folder.script("rank", r#"for a; do echo "[$a]"; done"#);
    let done = folder.launch().args(["--cpu", "--quiet"]).args([script]);
    let done = done.args(["--debug", "a b", "--", "-h", ""]).run();
    assert_eq!(done.stdout, "[--debug]\n[a b]\n[--]\n[-h]\n[]\n");
}

#[test]
fn arguments_of_several_ranks_may_name_the_local_rank() {
    let folder = Folder::new();
    let script = folder.script("rank", r#"echo "$1 $2""#);
    let run = |count| {
        let flags = ["--quiet", "--no_prefix", "--num_processes", count];
        let launch = folder.launch().args(flags).args([&script]);
        let done = launch.args(["log-${local_rank}", "5$$"]).run();
        done.lines().join(",")
    };
    assert_eq!(run("2"), "log-0 5$,log-1 5$");
    assert_eq!(run("1"), "log-${local_rank} 5$$");
}

#[test]
fn the_first_rank_may_read_a_pipe_and_the_others_read_nothing() {
    let folder = Folder::new();
    std::fs::write(folder.path("input"), "data\n").unwrap();
    let input = std::fs::File::open(folder.path("input")).unwrap();
    let script = folder.script("rank", r#"read -r line; echo "$RANK=$line""#);
    let flags = ["--quiet", "--no_prefix", "--num_processes=2"];
    let done = folder
        .launch()
        .stdin(input)
        .args(flags)
        .args([script])
        .run();
    assert_eq!(done.lines(), ["0=data", "1="]);
}

#[test]
fn a_job_that_saved_and_left_has_not_failed() {
    let folder = Folder::new();
    let script = folder.script("rank", "sleep 0.0$RANK; exit 75");
    let report = folder.path("report.json");
    let done = folder
        .launch()
        .args(["--num_processes", "2", "--max_restarts", "2", "--report"])
        .args([&report, &script])
        .run();
    done.assert_code(75);
    assert!(
        done.stderr
            .contains("note: `rank` was asked to end: it saved")
            && !done.stderr.contains("error"),
        "{}",
        done.stderr
    );
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains(r#""outcome": "left_early""#), "{report}");
}

#[test]
fn ranks_that_do_not_follow_one_that_left_are_ended_after_the_grace_period() {
    let folder = Folder::new();
    let script = folder.script("rank", r#"test "$RANK" = 0 && exit 75; exec sleep 600"#);
    let done = folder
        .launch()
        .args(["--num_processes", "2", "--grace_period", "0.3"])
        .args([script])
        .run();
    done.assert_code(143);
    assert!(
        done.stderr.contains("failed on rank 1 of 2"),
        "{}",
        done.stderr
    );
}
