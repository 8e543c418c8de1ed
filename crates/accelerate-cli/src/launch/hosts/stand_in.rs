//! For tests: programs that stand in for other launchers and write down what they were given.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use accelerate_plan::{env::Environment, launch::Program};

use super::{Machine, Outer};
use crate::launch::find_on_path;

/// No test waits longer for anything.
const DEADLINE: Duration = Duration::from_secs(60);

/// A folder that holds programs, a working folder and a home folder.
pub(crate) struct Site(tempfile::TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        for folder in ["bin", "work", "home"] {
            fs::create_dir(site.0.path().join(folder)).unwrap();
        }
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The text of a file that another process writes, once it is whole.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        let start = Instant::now();
        loop {
            match fs::read_to_string(self.path(name)) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => thread::sleep(Duration::from_millis(5)),
            }
            assert!(start.elapsed() < DEADLINE, "waited in vain for {name}");
        }
    }

    /// A shell script on the search path. Another process writes it, so that no child of this one
    /// that is just being started can hold it open: the system does not run a file that is open for
    /// writing.
    pub(crate) fn program(&self, name: &str, body: &str) -> PathBuf {
        let source = self.file("source", &format!("#!/bin/sh\n{body}\n"));
        let path = self.path("bin").join(name);
        let status = Command::new("install")
            .args(["-m", "755"])
            .args([&source, &path])
            .status()
            .unwrap();
        assert!(status.success());
        path
    }

    /// A launcher that writes its arguments and variables to files, and returns 7.
    pub(crate) fn launcher(&self, name: &str, version: &str) -> PathBuf {
        let folder = self.0.path().display();
        self.program(
            name,
            &format!(
                "if test \"$1\" = --version; then echo '{version}'; exit; fi\n\
                 printf '%s\\n' \"$@\" > {folder}/arguments\nenv > {folder}/environment\nexit 7"
            ),
        )
    }

    /// An environment whose search path has only our programs.
    pub(crate) fn environment(&self, variables: &[(&str, &str)]) -> Environment {
        let bin = self.path("bin").into_os_string();
        let variables = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Environment::from_pairs([(OsString::from("PATH"), bin)].into_iter().chain(variables))
    }

    pub(crate) fn machine<'a>(&self, environment: &'a Environment) -> Machine<'a> {
        Machine {
            environment,
            folder: self.path("work"),
            home: Some(self.path("home")),
            executable: self.path("bin").join("accelerate"),
            is_root: false,
            has_eth0: true,
        }
    }
}

/// The command of a job, ready to start. It inherits nothing of a job around the tests.
pub(crate) fn command(outer: &Outer) -> Command {
    let mut command = Command::new(&outer.program.executable);
    command
        .args(&outer.program.arguments)
        .envs(outer.overlay.iter())
        .stdin(Stdio::null());
    command
}

/// Runs a command that says little, and stops it where it does not end by itself.
pub(crate) fn output(mut command: Command) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > DEADLINE {
            let _ = child.kill();
            panic!("waited in vain for {command:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Arguments as text, in one line.
pub(crate) fn line(outer: &Outer) -> String {
    let words = outer.program.arguments.iter();
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    words.join(" ")
}

/// A Python script with an argument.
pub(crate) fn script() -> Program {
    Program {
        name: "train.py".to_owned(),
        executable: "python".into(),
        arguments: ["-u", "train.py", "--name=a b"]
            .map(OsString::from)
            .to_vec(),
    }
}

pub(crate) fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).to_vec()
}

/// A program that this machine has, for tests against the real thing; says so if there is none.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let found = find_on_path(&Environment::from_process(), &[name]);
    if found.is_none() {
        eprintln!("skipped: `{name}` is not installed on this machine");
    }
    found
}

pub(crate) fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}
