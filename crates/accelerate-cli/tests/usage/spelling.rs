//! How flags may be written.

use crate::command::Folder;

const BODY: [&str; 3] = [
    "sh",
    "-c",
    "echo ${WORLD_SIZE:-1} $ACCELERATE_MIXED_PRECISION \"$@\"",
];

/// What the processes of a launch print first.
fn first_line(words: &[&str]) -> String {
    let folder = Folder::new();
    let run = folder
        .launch(["--quiet", "--cpu", "--no_prefix"])
        .args(words);
    let done = run.args(BODY).args(["name"]).done();
    done.assert_code(0);
    done.stdout.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_flag_is_written_with_lines_below_or_between() {
    for words in [
        &["--num_processes", "2", "--mixed_precision", "bf16"][..],
        &["--num-processes", "2", "--mixed-precision", "bf16"],
        &["--num_processes=2", "--mixed-precision=bf16"],
        &["--num-processes=2", "--mixed_precision", "BF16"],
    ] {
        assert_eq!(first_line(words), "2 bf16", "{words:?}");
    }
}

#[test]
fn the_last_one_wins_and_no_flag_is_shortened() {
    let twice = [
        "--num_processes",
        "3",
        "--mixed_precision=fp16",
        "--num-processes=2",
    ];
    assert_eq!(first_line(&twice), "2 fp16");
    let folder = Folder::new();
    for (wrong, right) in [
        ("--num_proc", "--num_processes"),
        ("--main_process-port", "--main"),
        ("--multi_cpu", "--multi_gpu"),
    ] {
        let done = folder.launch([wrong, "2"]).args(BODY).done();
        done.assert_code(2)
            .assert_says(&format!("unexpected argument '{wrong}' found"));
        done.assert_says(&format!("a similar argument exists: '{right}"));
    }
    folder
        .launch(["--debug=true"])
        .args(BODY)
        .done()
        .assert_code(2);
}

#[test]
fn everything_after_the_program_is_for_the_program() {
    let folder = Folder::new();
    let after = [
        "-h",
        "--debug",
        "--",
        "--num_processes",
        "0",
        "--unknown",
        "-m",
        "",
    ];
    let run = |before: &[&str]| {
        let run = folder.launch(["--quiet", "--cpu"]).args(before);
        let body = ["sh", "-c", "printf '<%s>' \"$@\"", "name"];
        let done = run.args(body).args(after).done();
        done.assert_code(0);
        done.stdout
    };
    let expected = "<-h><--debug><--><--num_processes><0><--unknown><-m><>";
    assert_eq!(run(&[]), expected);
    assert_eq!(
        run(&["--"]),
        expected,
        "two lines before the program mean nothing else"
    );
}

#[test]
fn what_is_needed_and_missing() {
    let folder = Folder::new();
    let done = folder.launch(["--cpu"]).done();
    done.assert_code(2).assert_says("PROGRAM");
    done.assert_says("Usage: accelerate launch");
    let done = folder.launch(["--num_processes"]).done();
    done.assert_code(2).assert_says("'--num_processes <N>'");
    folder
        .accelerate(["lunch"])
        .done()
        .assert_code(2)
        .assert_says("'launch'");
    folder.accelerate(["--cpu"]).done().assert_code(2);
}

#[test]
fn the_name_of_a_link_is_the_subcommand() {
    let folder = Folder::new();
    let link = |name: &str, words: &[&str]| {
        let path = folder.path("bin").join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_accelerate"), &path).unwrap();
        folder.run_as(&path, words).done()
    };
    let done = link(
        "accelerate-launch",
        &["--quiet", "--cpu", "sh", "-c", "echo started"],
    );
    assert_eq!(done.assert_code(0).stdout, "started\n");
    link("accelerate-env", &[])
        .assert_code(0)
        .assert_prints("`Accelerate` version: ");
    link(
        "accelerate-config",
        &["default", "--config_file", "made.yaml"],
    )
    .assert_code(0);
    assert!(folder.read("made.yaml").contains("LOCAL_MACHINE"));
    for name in [
        "accelerate-estimate-memory",
        "accelerate-test",
        "accelerate-to-fsdp2",
    ] {
        let subcommand = name.trim_start_matches("accelerate-");
        link(name, &["--help"])
            .assert_code(0)
            .assert_prints(&format!("Usage: accelerate {subcommand}"));
    }
    // Another name is no subcommand.
    link("speed-up", &["launch", "--help"]).assert_code(0);
}
