//! Starts a program in a test: with a deadline, and with nothing left behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// No test waits longer than this for anything. Far above what is needed, so that a loaded machine
/// fails no test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// What a test or a launcher around it may have set.
const PROTOCOL: [&str; 9] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "ACCELERATE_DEBUG_MODE",
    "ACCELERATE_TORCH_DEVICE",
    "RUST_LOG",
];

/// A program that is going to be started.
pub(crate) struct Program {
    command: Command,
    out: PathBuf,
    err: PathBuf,
}

impl Program {
    /// The program will write its output into files of `folder`, which no other one uses.
    pub(crate) fn new(executable: impl AsRef<OsStr>, folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let number = fs::read_dir(folder).unwrap().count();
        let (out, err) = (
            folder.join(format!("{number}.out")),
            folder.join(format!("{number}.err")),
        );
        let mut command = Command::new(executable);
        command
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .env("ACCELERATE_USE_CPU", "true")
            .env("OMP_NUM_THREADS", "1");
        for name in PROTOCOL {
            command.env_remove(name);
        }
        Self { command, out, err }
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
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

/// A program that runs; it is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn wait_for_stdout(&self, text: &str) {
        wait_until(text, || read(&self.out).contains(text));
    }

    /// The first line on standard error that has `text` in it.
    pub(crate) fn wait_for_stderr(&self, text: &str) -> String {
        let mut found = None;
        wait_until(text, || {
            let err = read(&self.err);
            found = err
                .split_inclusive('\n')
                .find(|line| line.contains(text) && line.ends_with('\n'))
                .map(str::to_owned);
            found.is_some()
        });
        found.unwrap()
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    pub(crate) fn wait(mut self) -> Done {
        let mut status = None;
        let start = Instant::now();
        while status.is_none() {
            status = self.child.try_wait().unwrap();
            assert!(
                start.elapsed() < DEADLINE,
                "no end after {DEADLINE:?}\n{}\n{}",
                read(&self.out),
                read(&self.err)
            );
            thread::sleep(Duration::from_millis(5));
        }
        Done {
            status: status.unwrap(),
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

/// How a program ended.
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

    /// Everything in `texts` stands on standard error.
    #[track_caller]
    pub(crate) fn assert_told(&self, texts: &[&str]) {
        for text in texts {
            assert!(
                self.stderr.contains(text),
                "`{text}` is not told: {self:#?}"
            );
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for `{what}`");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Processes with `text` among their arguments, ended ones excepted.
#[cfg(target_os = "linux")]
pub(crate) fn with_argument(text: &str) -> Vec<Pid> {
    let all = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    all.filter(|&pid| proc_file(pid, "cmdline").is_some_and(|line| line.contains(text)))
        .collect()
}

/// The process among `pids` that runs `executable` as `rank`.
#[cfg(target_os = "linux")]
pub(crate) fn rank_among(pids: &[Pid], executable: &Path, rank: usize) -> Option<Pid> {
    let wanted = format!("RANK={rank}");
    pids.iter().copied().find(|&pid| {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        fs::read_link(format!("{folder}/exe")).is_ok_and(|exe| exe == executable)
            && proc_file(pid, "environ").is_some_and(|env| env.split('\0').any(|set| set == wanted))
    })
}

#[cfg(target_os = "linux")]
fn proc_file(pid: Pid, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{}/{name}", pid.as_raw_nonzero())).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
}
