//! Starts the built binary in an environment in which nobody has chosen anything.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A folder that stands for the home of a user.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// `accelerate`, to be given arguments, with this folder as its working folder.
    pub(crate) fn accelerate(&self) -> Command {
        self.alone(Path::new(env!("CARGO_BIN_EXE_accelerate")))
    }

    /// A program that inherits nothing but the search path.
    pub(crate) fn alone(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.0.path())
            .env("HF_HUB_OFFLINE", "1")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `accelerate` with these arguments.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(&self.accelerate().args(arguments).output().unwrap())
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}
