//! Questions without a terminal: what is shown, and what ends them.

use std::{fs, io, process::Stdio};

use crate::command::{Ended, Home};

const DEFAULT_FILE: &str = ".cache/huggingface/accelerate/default_config.yaml";

#[test]
fn questions_are_shown_with_defaults_help_and_options() {
    let home = Home::new();
    let ended = home
        .answer(&["config"], &["", "multi-tpu", "TPU"])
        .assert_code(1);
    let shown = ended.stderr();
    assert!(
        shown.starts_with(
            "Where do programs run? [0]\n  \
             (on this machine and its neighbours, or as jobs of Amazon SageMaker)\n   \
             0  This machine\n   1  AWS (Amazon SageMaker)\n  -> This machine\n"
        ),
        "{shown}"
    );
    assert!(shown.contains("\n  10  TPU\n"), "{shown}");
    assert!(
        shown.contains("  expected a number from 0 to 10, or one of `No dist"),
        "{shown}"
    );
    assert!(shown.contains(", found `multi-tpu`\n  -> TPU\n"), "{shown}");
}

#[test]
fn the_end_of_the_answers_is_an_error_that_names_the_question() {
    let home = Home::new();
    let shown = home.run(&["config"]).assert_code(1).stderr();
    assert!(
        shown.contains(
            "error: the input ended before the question `Where do programs run?` was answered: \
             expected a number from 0 to 1, or one of `This machine`, `AWS (Amazon SageMaker)`\n"
        ),
        "{shown}"
    );
    assert!(
        shown.contains("\nhint: give one line per question"),
        "{shown}"
    );
    assert!(
        !home.path(".cache").exists(),
        "nothing is made before the last answer"
    );
}

#[test]
fn the_default_file_and_its_folders_are_made() {
    let home = Home::new();
    let ended = home.answer(&["config"], &[""; 8]).assert_code(0);
    let path = home.path(DEFAULT_FILE);
    assert_eq!(
        ended.stdout(),
        format!("configuration saved at {}\n", path.display())
    );
    assert!(home.read(DEFAULT_FILE).contains("distributed_type: 'NO'\n"));
}

#[test]
fn the_name_of_the_file_decides_about_its_form() {
    let home = Home::new();
    let arguments = ["config", "--config-file", "c.json"];
    home.answer(&arguments, &[""; 8]).assert_code(0);
    let text = home.read("c.json");
    assert!(
        text.starts_with("{\n  \"compute_environment\": \"LOCAL_MACHINE\",\n"),
        "{text}"
    );
    assert!(text.contains("\n  \"tpu_env\": [],\n"), "{text}");
}

#[test]
fn a_folder_that_is_missing_is_told_before_the_first_question() {
    let home = Home::new();
    let ended = home
        .answer(&["config", "--config_file", "no/c.yaml"], &[""; 8])
        .assert_code(1);
    assert!(
        ended.stderr().starts_with("error: no folder `no` for"),
        "{}",
        ended.stderr()
    );
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let home = Home::new();
    fs::create_dir(home.path("c.yaml")).unwrap();
    let ended = home
        .answer(&["config", "--config_file", "c.yaml"], &[""; 8])
        .assert_code(1);
    assert!(
        ended.stderr().contains("caused by: expected a file at"),
        "{}",
        ended.stderr()
    );
}

#[test]
fn one_gpu_writes_nothing() {
    let home = Home::new();
    let ended = home.answer(&["config"], &["", "multi-GPU", "", "", "", "", "", "", ""]);
    let shown = ended.assert_code(1).stderr();
    assert!(
        shown.contains("error: `multi-GPU` needs more than one process"),
        "{shown}"
    );
    assert!(!home.path(DEFAULT_FILE).exists());
}

#[test]
fn answers_without_end_come_to_an_end() {
    let home = Home::new();
    let zeros = fs::File::open("/dev/zero").unwrap();
    let output = home.accelerate(&["config"]).stdin(zeros).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn nobody_has_to_read_the_questions() {
    let home = Home::new();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    fs::write(home.path("answers"), "\n".repeat(8)).unwrap();
    let answers = fs::File::open(home.path("answers")).unwrap();
    let mut command = home.accelerate(&["config"]);
    let status = command
        .stdin(answers)
        .stdout(Stdio::null())
        .stderr(writer)
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(home.path(DEFAULT_FILE).exists());
}

#[test]
fn help_names_the_subcommands_and_the_flags() {
    let home = Home::new();
    let help = |arguments: &[&str]| home.run(arguments).assert_code(0).stdout();
    let text = help(&["config", "--help"]);
    for word in [
        "default",
        "update",
        "--config_file <FILE>",
        "default_config.yaml",
        "option",
    ] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert!(help(&["config", "default", "-h"]).contains("[possible values: no, fp16, bf16]"));
    assert!(help(&["to-fsdp2", "-h"]).contains("--output_file <FILE>"));
    let usage = |ended: Ended| ended.assert_code(2);
    usage(home.run(&["config", "--unknown"]));
    usage(home.run(&["config", "--config_file", "a", "default"]));
}
