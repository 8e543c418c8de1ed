//! Starts the program as a user would: by the built launcher, with a deadline.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far above what is needed, so that a loaded machine fails no test.
const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_accelerate-selftest");

/// How a job ended, and what it told.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The line of JSON for a stage.
    #[track_caller]
    pub(crate) fn stage(&self, name: &str) -> Value {
        let lines = self.lines();
        let line = lines.iter().find(|line| line["stage"] == name);
        line.unwrap_or_else(|| panic!("no stage `{name}`: {self:#?}"))
            .clone()
    }

    /// The last line of JSON.
    #[track_caller]
    pub(crate) fn summary(&self) -> Value {
        self.lines().last().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:#?}")))
            .collect()
    }

    #[track_caller]
    pub(crate) fn assert(&self, code: i32, told: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in told {
            assert!(self.err.contains(text), "`{text}` is not told: {self:#?}");
        }
    }
}

/// The program on some processes of this machine.
pub(crate) fn launch(processes: usize, arguments: &[&str]) -> Ended {
    let mut command = without_protocol(launcher());
    command
        .args(["launch", "--cpu", "--no_prefix", "--grace_period", "0.2"])
        .args(["--num_processes", &processes.to_string(), PROGRAM, "--json"])
        .args(arguments);
    run(command)
}

/// The program by itself.
pub(crate) fn alone(arguments: &[&str]) -> Ended {
    let mut command = without_protocol(PROGRAM);
    command.args(arguments).env("ACCELERATE_USE_CPU", "1");
    run(command)
}

/// The program as rank 0 of several, of which no other is started.
pub(crate) fn rank_0_of(world: usize, arguments: &[&str]) -> Ended {
    let mut command = without_protocol(PROGRAM);
    command
        .args(arguments)
        .env("ACCELERATE_USE_CPU", "1")
        .env("RANK", "0")
        .env("LOCAL_RANK", "0")
        .env("WORLD_SIZE", world.to_string())
        .env("LOCAL_WORLD_SIZE", world.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", free_port().to_string());
    run(command)
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A command without what a launcher around the test may have set.
fn without_protocol(executable: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(executable);
    for name in [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(mut command: Command) -> Ended {
    let child = command
        .env("OMP_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    Ended {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// The launcher beside the program; it is built where a run of single packages left it out.
fn launcher() -> &'static Path {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    LAUNCHER.get_or_init(|| {
        let folder = Path::new(PROGRAM).parent().unwrap();
        let launcher = folder.join(format!("accelerate{EXE_SUFFIX}"));
        if !launcher.exists() {
            let profile = match folder.file_name().unwrap().to_str().unwrap() {
                "debug" => "dev",
                name => name,
            };
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--package", "accelerate-cli", "--profile", profile]);
            cargo.arg("--target-dir").arg(folder.parent().unwrap());
            assert!(
                cargo.status().unwrap().success(),
                "the launcher cannot be built"
            );
        }
        launcher
    })
}
