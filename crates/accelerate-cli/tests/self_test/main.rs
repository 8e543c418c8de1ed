//! `accelerate test` from outside: the built binary, with stand-ins for the self-test program.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// A folder with stand-ins and, where a test asks for it, the binary.
struct Folder(TempDir);

impl Folder {
    /// With a space in its name, as folders may have.
    fn new() -> Self {
        Self(
            tempfile::Builder::new()
                .prefix("self test ")
                .tempdir()
                .unwrap(),
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The binary in this folder, away from anything that was built beside it.
    fn binary(&self) -> PathBuf {
        let path = self.path("accelerate");
        fs::copy(env!("CARGO_BIN_EXE_accelerate"), &path).unwrap();
        path
    }
}

/// `accelerate test`, still without arguments.
fn test(binary: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("test")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in [
        "ACCELERATE_SELFTEST",
        "PYTHON_EXEC",
        "VIRTUAL_ENV",
        "RANK",
        "WORLD_SIZE",
    ] {
        command.env_remove(name);
    }
    command
}

fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn run(mut command: Command) -> Ended {
    Ended::of(finish(command.spawn().unwrap()))
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    #[track_caller]
    fn assert(&self, code: i32, told: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in told {
            assert!(self.err.contains(text), "`{text}` is not told: {self:#?}");
        }
    }
}

fn with_stand_in(script: &Path) -> Command {
    let mut command = test(env!("CARGO_BIN_EXE_accelerate"));
    command.env("ACCELERATE_SELFTEST", script);
    command
}

#[test]
fn the_program_is_launched_and_its_success_told() {
    let folder = Folder::new();
    let script = folder.script("stand-in", r#"echo "rank $RANK of $WORLD_SIZE: $*""#);
    let mut command = with_stand_in(&script);
    command.args([
        "--cpu",
        "--num_processes",
        "2",
        "--timeout",
        "2.5",
        "--json",
    ]);
    let ended = run(command);
    let shown = format!(
        "\nRunning: accelerate launch --cpu --num_processes 2 --no_prefix '{}' --stage_timeout 2.5 --json\n",
        script.display()
    );
    ended.assert(0, &[&shown, "The self-test passed"]);
    let mut lines: Vec<&str> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "rank 0 of 2: --stage_timeout 2.5 --json",
            "rank 1 of 2: --stage_timeout 2.5 --json"
        ]
    );
}

#[test]
fn a_failure_is_told_with_command_and_code() {
    let folder = Folder::new();
    let script = folder.script("stand-in", "echo 'stage x failed' >&2; exit 7");
    let mut command = with_stand_in(&script);
    command.args(["--cpu", "--num_processes", "1"]);
    let ended = run(command);
    ended.assert(
        7,
        &[
            "stage x failed",
            "error: the self-test failed: `accelerate launch --cpu",
            "exit code 7",
        ],
    );
    assert!(!ended.err.contains("passed"), "{ended:#?}");
}

#[test]
fn a_stage_that_took_too_long_has_a_hint() {
    let folder = Folder::new();
    let script = folder.script("stand-in", "exit 3");
    let mut command = with_stand_in(&script);
    command.args(["--cpu", "--num_processes", "1"]);
    run(command).assert(3, &["hint: a stage took longer than `--timeout` allows"]);
}

#[test]
fn launch_options_and_the_file_are_passed_on() {
    let folder = Folder::new();
    let script = folder.script("stand-in", "exit 0");
    let file = folder.path("a config.yaml");
    let mut command = with_stand_in(&script);
    command
        .arg("--config_file")
        .arg(&file)
        .args(["--", "--num_cpu_threads_per_process", "1"]);
    let shown = format!(
        "accelerate launch --config_file '{}' --no_prefix --num_cpu_threads_per_process 1 ",
        file.display()
    );
    let ended = run(command);
    assert!(ended.err.contains(&shown), "{ended:#?}");
}

#[test]
fn the_program_is_found_beside_the_binary_or_on_the_search_path() {
    let folder = Folder::new();
    let binary = folder.binary();
    let missing = run({
        let mut command = test(&binary);
        command.args(["--cpu"]).env("PATH", "/nowhere");
        command
    });
    missing.assert(
        1,
        &[
            "no program `accelerate-selftest`",
            "cargo install accelerate-selftest",
        ],
    );

    let elsewhere = Folder::new();
    elsewhere.script("accelerate-selftest", "echo from the path");
    let search = |command: &mut Command| {
        let path = format!("{}:/usr/bin:/bin", elsewhere.path("").display());
        command
            .args(["--cpu", "--num_processes", "1"])
            .env("PATH", path);
    };
    let mut command = test(&binary);
    search(&mut command);
    let ended = run(command);
    ended.assert(0, &[]);
    assert_eq!(ended.out, "from the path\n");

    folder.script("accelerate-selftest", "echo from beside");
    let mut command = test(&binary);
    search(&mut command);
    let ended = run(command);
    ended.assert(0, &[]);
    assert_eq!(ended.out, "from beside\n");
}

#[test]
fn a_variable_that_names_no_program_is_told() {
    let folder = Folder::new();
    let ended = run(with_stand_in(&folder.path("nothing")));
    ended.assert(1, &["`ACCELERATE_SELFTEST` names", "nothing`", "hint: "]);
}

#[test]
fn the_script_of_a_python_package_is_run_without_asking_python() {
    let folder = Folder::new();
    let python = folder.script("env/bin/python", r#"echo "python $*""#);
    let script = "env/lib/python3.12/site-packages/accelerate/test_utils/scripts/test_script.py";
    let script = folder.script(script, "");
    fs::write(
        folder.path("env/pyvenv.cfg"),
        "include-system-site-packages = false\n",
    )
    .unwrap();
    let mut command = test(env!("CARGO_BIN_EXE_accelerate"));
    command.args(["--cpu", "--num_processes", "1"]);
    command.arg(format!("--python={}", python.display()));
    let ended = run(command);
    ended.assert(0, &["The self-test passed"]);
    let last = ended.out.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("python ") && last.ends_with(script.to_str().unwrap()),
        "{ended:#?}"
    );
    assert_eq!(
        ended.out.lines().count(),
        1,
        "Python ran more than once: {ended:#?}"
    );
}

#[test]
fn a_python_without_the_package_is_told_with_where_was_looked() {
    let folder = Folder::new();
    folder.script("env/bin/python", "");
    folder.script("env/lib/python3.12/site-packages/other.py", "");
    fs::write(
        folder.path("env/pyvenv.cfg"),
        "include-system-site-packages = false\n",
    )
    .unwrap();
    let mut command = test(env!("CARGO_BIN_EXE_accelerate"));
    command
        .arg("--python")
        .env("VIRTUAL_ENV", folder.path("env"));
    run(command).assert(
        1,
        &["lib/python3.12/site-packages", "pip install accelerate"],
    );
}

#[test]
fn values_out_of_range_are_a_wrong_command_line() {
    for wrong in [
        &["--timeout", "0"][..],
        &["--timeout", "soon"],
        &["--num_processes", "0"],
        &["--timeout", "1", "--python"],
        &["program"],
    ] {
        let mut command = test(env!("CARGO_BIN_EXE_accelerate"));
        command.args(wrong);
        let ended = run(command);
        assert_eq!(ended.code, Some(2), "{wrong:?}: {ended:#?}");
    }
}

#[test]
fn a_signal_ends_everything_that_was_started() {
    let folder = Folder::new();
    let pid_file = folder.path("pid");
    let body = format!(
        "echo $$ > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 600",
        pid_file.display()
    );
    let script = folder.script("stand-in", &body);
    let mut command = with_stand_in(&script);
    command.args(["--cpu", "--num_processes", "1"]);
    let child = command.spawn().unwrap();
    let start = Instant::now();
    while !pid_file.exists() {
        assert!(start.elapsed() < DEADLINE, "the stand-in does not start");
        thread::sleep(Duration::from_millis(5));
    }
    let test = Pid::from_child(&child);
    kill_process(test, Signal::TERM).unwrap();
    let ended = Ended::of(finish(child));
    assert_eq!(ended.code, Some(143), "{ended:#?}");
    let sleeper: i32 = fs::read_to_string(pid_file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let is_gone = !Path::new(&format!("/proc/{sleeper}")).exists();
    assert!(
        is_gone || cfg!(not(target_os = "linux")),
        "{sleeper} still runs"
    );
}
