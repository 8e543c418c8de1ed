//! Questions at a terminal: keys go in, the screen comes out.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::command::Home;

/// Far above what is needed, so that a loaded machine fails no test.
const DEADLINE: Duration = Duration::from_secs(60);
const DOWN: &str = "\x1b[B";
const ENTER: &str = "\r";
const BACKSPACE: &str = "\x7f";
const ESCAPE: &str = "\x1b";
const CTRL_C: &str = "\x03";

/// `accelerate config` at a terminal.
struct Session {
    child: Child,
    ours: File,
    /// Kept open, so that what the command wrote can be read when it has ended.
    _theirs: File,
    /// What came out since the last key.
    screen: String,
}

impl Session {
    fn start(home: &Home) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = Winsize {
            ws_row: 40,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let open = || {
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(&name)
                .unwrap()
        };
        let mut command = home.accelerate(&["config", "--config_file", "c.yaml"]);
        command
            .env("TERM", "xterm")
            .stdin(open())
            .stdout(Stdio::piped())
            .stderr(open());
        Self {
            child: command.spawn().unwrap(),
            ours: ours.into(),
            _theirs: open(),
            screen: String::new(),
        }
    }

    /// Waits until `text` is on the screen, then types.
    fn at(&mut self, text: &str, keys: &[&str]) {
        let begin = Instant::now();
        while !self.screen.contains(text) {
            let waited = begin.elapsed();
            assert!(waited < DEADLINE, "no `{text}` in: {}", self.screen);
            self.read();
        }
        self.screen.clear();
        self.ours.write_all(keys.concat().as_bytes()).unwrap();
    }

    fn read(&mut self) {
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        if poll(&mut ready, Some(&tick)).unwrap() > 0 {
            let mut bytes = [0; 4096];
            let count = self.ours.read(&mut bytes).unwrap();
            self.screen += &String::from_utf8_lossy(&bytes[..count]);
        }
    }

    /// The exit code and what was written to stdout.
    fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < DEADLINE, "still running: {}", self.screen);
            // The command must not wait for its screen to be read.
            self.read();
        }
        let modes = tcgetattr(&self.ours).unwrap().local_modes;
        let usual = LocalModes::ICANON | LocalModes::ECHO;
        assert!(
            modes.contains(usual),
            "the terminal is left as it was found"
        );
        let output = self.child.wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    }
}

#[test]
fn arrow_keys_numbers_and_corrections_lead_to_a_file() {
    let home = Home::new();
    let mut session = Session::start(&home);
    session.at("Where do programs run?", &[ENTER]);
    session.at("multi-CPU", &[DOWN, ENTER]);
    session.at("How many machines", &["many", ENTER]);
    session.at(
        "expected a whole number",
        &[BACKSPACE, BACKSPACE, BACKSPACE, BACKSPACE, ENTER],
    );
    session.at("checked while running", &["YES", ENTER]);
    session.at("mpirun", &[ENTER]);
    session.at("dynamo", &["n", ENTER]);
    session.at("How many processes", &["4", ENTER]);
    session.at("lower precision", &["2", ENTER]);
    let (code, stdout) = session.end();
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "configuration saved at c.yaml\n")
    );
    let text = home.read("c.yaml");
    for line in [
        "distributed_type: MULTI_CPU\n",
        "num_machines: 1\n",
        "debug: true\n",
        "num_processes: 4\n",
        "mixed_precision: bf16\n",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
}

#[test]
fn escape_and_ctrl_c_write_nothing() {
    for key in [ESCAPE, CTRL_C] {
        let home = Home::new();
        let mut session = Session::start(&home);
        session.at("Where do programs run?", &[ENTER]);
        session.at("multi-CPU", &[key]);
        session.at("cancelled: nothing was written", &[]);
        assert_eq!(session.end(), (Some(130), String::new()));
        assert!(!home.path("c.yaml").exists());
    }
}
