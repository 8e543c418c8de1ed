//! Starts the built binary in a test: with a deadline, its own folder, and nothing left behind.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// No test waits longer than this for anything. Far above what is needed, so that a loaded machine
/// fails no test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A folder with scripts and output files.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes an executable shell script; returns its path.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// `accelerate launch`, to be given more arguments. It works in this folder and inherits no
    /// variable of the protocol.
    pub(crate) fn launch(&self) -> Launch {
        let mut command = Command::new(env!("CARGO_BIN_EXE_accelerate"));
        command
            .arg("launch")
            .current_dir(self.0.path())
            .env("HF_HOME", self.0.path())
            .stdin(Stdio::null());
        for name in [
            "RANK",
            "WORLD_SIZE",
            "LOCAL_RANK",
            "OMP_NUM_THREADS",
            "CUDA_VISIBLE_DEVICES",
            "PYTHONFAULTHANDLER",
            "TORCHELASTIC_ERROR_FILE",
            "TORCHELASTIC_RESTART_COUNT",
        ] {
            command.env_remove(name);
        }
        let id = fs::read_dir(self.0.path()).unwrap().count();
        let out = self.path(&format!("stdout-{id}"));
        let err = self.path(&format!("stderr-{id}"));
        command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap());
        Launch { command, out, err }
    }

    /// The numbers in a file that the processes write, once there are `count` of them.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let path = self.path(name);
        let mut pids = Vec::new();
        wait_until("processes to start", || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let whole = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            pids = whole
                .filter_map(|line| Pid::from_raw(line.trim().parse().ok()?))
                .collect();
            pids.len() >= count
        });
        pids
    }
}

pub(crate) struct Launch {
    command: Command,
    out: PathBuf,
    err: PathBuf,
}

impl Launch {
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.command.stderr(stderr);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        let child = self.command.spawn().unwrap();
        Running {
            child,
            out: self.out,
            err: self.err,
        }
    }

    pub(crate) fn run(self) -> Done {
        self.start().wait()
    }
}

pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn wait_for_stderr(&self, text: &str) {
        self.wait_for_count_on_stderr(text, 1);
    }

    /// Waits until stderr holds a text so many times.
    pub(crate) fn wait_for_count_on_stderr(&self, text: &str, count: usize) {
        wait_until(text, || {
            fs::read_to_string(&self.err).is_ok_and(|err| err.matches(text).count() >= count)
        });
    }

    /// Number of the launcher's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn wait(mut self) -> Done {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "waited in vain for the launcher to end\n{}",
                self.state()
            );
            thread::sleep(Duration::from_millis(5));
        };
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        Done {
            status,
            stdout: read(&self.out),
            stderr: read(&self.err),
        }
    }
}

impl Running {
    /// What it has written, and what its threads and the processes below it are doing.
    fn state(&self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let own = self.pid().as_raw_nonzero().get().to_string();
        let mut text = format!("stdout: {}\nstderr: {}\n", read(&self.out), read(&self.err));
        let mut open = vec![own];
        while let Some(pid) = open.pop() {
            let process = Path::new("/proc").join(pid);
            for thread in fs::read_dir(process.join("task")).into_iter().flatten() {
                let thread = thread.unwrap().path();
                let status = read(&thread.join("status"));
                let kept = ["Name", "State", "PPid", "Tgid", "Sig", "Shd"];
                let lines = status
                    .lines()
                    .filter(|line| kept.iter().any(|name| line.starts_with(name)));
                text.extend(lines.flat_map(|line| [line, "; "]));
                text += &read(&thread.join("wchan"));
                text.push('\n');
                let children = read(&thread.join("children"));
                open.extend(children.split_whitespace().map(str::to_owned));
            }
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
    }

    /// The lines of stdout, sorted.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until none of the processes runs.
pub(crate) fn wait_until_gone(pids: &[Pid]) {
    for pid in pids {
        wait_until(&format!("process {} to end", pid.as_raw_nonzero()), || {
            !is_running(*pid)
        });
    }
}

/// Whether a process runs; one that has ended and waits to be noticed does not.
pub(crate) fn is_running(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let ended = stat.is_ok_and(|stat| {
        let state = stat.rsplit(')').next().unwrap_or_default().trim();
        state.starts_with('Z') || state.starts_with('X')
    });
    !ended && test_kill_process(pid).is_ok()
}
