//! Runs the built binary as a user would, in a folder of its own: of this environment it sees the
//! search path and nothing else.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// No test waits longer than this for anything. Far above what is needed, so that a loaded machine
/// fails no test.
const DEADLINE: Duration = Duration::from_secs(60);

/// A folder with files, a home and a cache.
pub(crate) struct Folder {
    folder: TempDir,
    runs: Cell<usize>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "home", "hf", "hf/accelerate", "tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            folder,
            runs: Cell::new(0),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The file that is used when none is named.
    pub(crate) fn write_default_config(&self, text: &str) -> PathBuf {
        self.write("hf/accelerate/default_config.yaml", text)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// A shell script on the search path. Another process writes it, so that no child of this one
    /// holds it open while it is executed.
    pub(crate) fn program(&self, name: &str, body: &str) -> PathBuf {
        let source = self.write(&format!("{name}.sh"), &format!("#!/bin/sh\n{body}\n"));
        let path = self.path("bin").join(name);
        let mut install = Command::new("install");
        let status = install.args(["-m", "755"]).args([&source, &path]).status();
        assert!(status.unwrap().success());
        path
    }

    /// A run of `accelerate` with these words.
    pub(crate) fn accelerate<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Run {
        self.run_as(Path::new(env!("CARGO_BIN_EXE_accelerate")), words)
    }

    /// A run of `accelerate launch` with these words.
    pub(crate) fn launch<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Run {
        let mut run = self.accelerate(["launch"]);
        run.command.args(words);
        run
    }

    /// A run of the binary under another name.
    pub(crate) fn run_as<S: AsRef<OsStr>>(
        &self,
        executable: &Path,
        words: impl IntoIterator<Item = S>,
    ) -> Run {
        let number = self.runs.replace(self.runs.get() + 1);
        let [out, err] = ["out", "err"].map(|name| self.path(&format!("{name}-{number}")));
        let system = std::env::var("PATH").unwrap_or_default();
        let search = format!("{}:{system}", self.path("bin").display());
        let mut command = Command::new(executable);
        command
            .args(words)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", search)
            .env("HOME", self.path("home"))
            .env("HF_HOME", self.path("hf"))
            .env("TMPDIR", self.path("tmp"))
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap());
        Run { command, out, err }
    }
}

/// A command that has not started.
pub(crate) struct Run {
    command: Command,
    out: PathBuf,
    err: PathBuf,
}

impl Run {
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command.args(words);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn envs<'a>(mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.command.envs(pairs);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        Running {
            child: self.command.spawn().unwrap(),
            out: self.out,
            err: self.err,
        }
    }

    pub(crate) fn done(self) -> Done {
        self.start().done()
    }
}

/// A command that runs. It ends with this value.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait_for_stdout(&self, text: &str) {
        wait_until(text, || read(&self.out).contains(text));
    }

    pub(crate) fn wait_for_stderr(&self, text: &str) {
        wait_until(text, || read(&self.err).contains(text));
    }

    pub(crate) fn done(mut self) -> Done {
        let mut status = None;
        wait_until("the command to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        Done {
            code: status.unwrap().code(),
            stdout: read(&self.out),
            stderr: read(&self.err),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Done {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "no `{text}` in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_prints(&self, text: &str) -> &Self {
        assert!(self.stdout.contains(text), "no `{text}` in {self:#?}");
        self
    }

    /// The lines of stdout, sorted.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// A port that nothing uses now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
