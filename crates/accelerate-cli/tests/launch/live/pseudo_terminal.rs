//! A terminal for the command under test: keys go in, and what a person would see comes out.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::launcher::DEADLINE;

/// A command that has a terminal to itself.
pub(super) struct Session {
    child: Child,
    ours: File,
    /// Kept open, so that what the command wrote can be read when it has ended.
    _theirs: File,
    screen: vt100::Parser,
    /// Everything that came out.
    pub(super) bytes: Vec<u8>,
}

impl Session {
    /// Starts `accelerate` in `folder` on a terminal of 40 lines of 120 characters.
    pub(super) fn start<S: AsRef<OsStr>>(
        folder: &Path,
        words: impl IntoIterator<Item = S>,
        variables: &[(&str, &str)],
    ) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        tcsetwinsize(&ours, size(40, 120)).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&name)
                .unwrap()
        };
        // The terminal is its own, so that keys and sizes reach it as they would reach anyone.
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(env!("CARGO_BIN_EXE_accelerate"))
            .args(words)
            .current_dir(folder)
            .env("HF_HOME", folder)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(open())
            .stdout(open())
            .stderr(open());
        Self {
            child: command.spawn().unwrap(),
            ours: ours.into(),
            _theirs: open(),
            screen: vt100::Parser::new(40, 120, 0),
            bytes: Vec::new(),
        }
    }

    /// What stands on the screen.
    pub(super) fn contents(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until `text` stands on the screen.
    #[track_caller]
    pub(super) fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contents().contains(text));
    }

    #[track_caller]
    pub(super) fn wait_until(&mut self, what: &str, condition: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        while !condition(self.screen.screen()) {
            let screen = self.contents();
            assert!(
                begin.elapsed() < DEADLINE,
                "waited in vain for `{what}`:\n{screen}"
            );
            assert!(
                self.child.try_wait().unwrap().is_none() || self.read(),
                "ended without `{what}`:\n{screen}"
            );
            self.read();
        }
    }

    pub(super) fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    pub(super) fn resize(&mut self, lines: u16, columns: u16) {
        self.screen.screen_mut().set_size(lines, columns);
        tcsetwinsize(&self.ours, size(lines, columns)).unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether a letter has a colour.
    pub(super) fn has_colours(&self) -> bool {
        let screen = self.screen.screen();
        let (lines, columns) = screen.size();
        let mut places = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
        places.any(|(line, column)| {
            let cell = screen.cell(line, column).unwrap();
            cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
        })
    }

    /// Waits for the end; the terminal must be as it was. Returns the exit code and the screen.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                begin.elapsed() < DEADLINE,
                "still running:\n{}",
                self.contents()
            );
            // The command must not wait for its screen to be read.
            self.read();
        };
        while self.read() {}
        let modes = tcgetattr(&self.ours).unwrap().local_modes;
        let usual = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(modes.contains(usual), "keys are as they were");
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen(), "the screen of before is back");
        assert!(!screen.hide_cursor(), "the cursor is there");
        (status.code(), self.contents())
    }

    /// Takes what has come out; whether something has.
    fn read(&mut self) -> bool {
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        if poll(&mut ready, Some(&tick)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let count = self.ours.read(&mut bytes).unwrap();
        self.screen.process(&bytes[..count]);
        self.bytes.extend_from_slice(&bytes[..count]);
        count > 0
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(lines: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
