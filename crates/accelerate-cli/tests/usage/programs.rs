//! Which file is executed, and what is said of one that cannot be.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::command::Folder;

#[test]
fn a_shell_script_that_is_not_executable_is_not_given_to_python() {
    let folder = Folder::new();
    folder.program("python", "echo this is python; cat \"$1\"");
    folder.write("train", "#!/bin/sh\necho shell\n");
    let done = folder.launch(["--cpu", "train"]).done();
    done.assert_code(1)
        .assert_says("`./train` is a program, but it is not executable");
    done.assert_says("hint: run `chmod +x ./train`");
    folder.write("train", "#!/usr/bin/env python3\n");
    let done = folder.launch(["--cpu", "train"]).done();
    done.assert_code(0).assert_prints("this is python");
}

#[test]
fn a_script_keeps_the_name_that_was_typed() {
    let folder = Folder::new();
    folder.program("python", "printf '%s\\n' \"$@\"");
    folder.write("train.py", "");
    let done = folder.launch(["--cpu", "train.py", "--lr", "1"]).done();
    assert_eq!(done.assert_code(0).stdout, "train.py\n--lr\n1\n");
    let done = folder.launch(["--cpu", "./train.py"]).done();
    assert_eq!(done.assert_code(0).stdout, "./train.py\n");
}

#[test]
fn a_script_that_chooses_its_python_writes_through_at_once() {
    let folder = Folder::new();
    let script = folder.write("train", "#!/usr/bin/env python3\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |count| folder.launch(["--cpu", "--dry_run", "--num_processes", count, "train"]);
    run("2").done().assert_prints("PYTHONUNBUFFERED=1\n");
    let alone = run("1").done();
    assert!(!alone.stdout.contains("PYTHONUNBUFFERED"), "{alone:#?}");
    let done = run("2").env("PYTHONUNBUFFERED", "x").done();
    assert!(!done.stdout.contains("PYTHONUNBUFFERED"), "{done:#?}");
    // An interpreter that is named runs it.
    let python = folder.program("mine", "exit 0");
    let done = run("2").env("PYTHON_EXEC", &python).done();
    done.assert_prints(&format!("{} -u train\n", python.display()));
}

#[test]
fn a_flag_that_nobody_knows_is_no_word_for_the_program() {
    let folder = Folder::new();
    let done = folder.launch(["--learning_rate", "1", "train.py"]).done();
    done.assert_code(2)
        .assert_says("unexpected argument '--learning_rate'");
    assert!(!done.stderr.contains("-- --learning_rate"), "{done:#?}");
    let done = folder.accelerate(["test", "--num_processes", "0"]).done();
    done.assert_code(2)
        .assert_says("expected a whole number, at least 1");
}
