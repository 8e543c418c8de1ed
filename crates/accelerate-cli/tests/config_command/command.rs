//! Starts the built binary with a folder of its own, in which all its files are.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// The folder that stands for the home of a user.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `accelerate` with these arguments, in this folder.
    pub(crate) fn accelerate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_accelerate"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("HOME", self.0.path())
            .env_remove("HF_HOME")
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::null());
        command
    }

    /// Runs it without answers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended(self.accelerate(arguments).output().unwrap())
    }

    /// Runs it with these lines on standard input, then the end of it.
    pub(crate) fn answer(&self, arguments: &[&str], lines: &[&str]) -> Ended {
        let mut command = self.accelerate(arguments);
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        // All of it fits into the pipe. Who ends early leaves some of it.
        let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        Ended(child.wait_with_output().unwrap())
    }
}

/// A command that has ended.
pub(crate) struct Ended(Output);

impl Ended {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{}", self.stderr());
        self
    }
}
