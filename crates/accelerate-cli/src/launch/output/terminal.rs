//! A terminal for the progress bars of one rank.
//!
//! Programs draw progress bars only on a terminal, and as wide as it is. Output that passes through
//! a pipe would lose them. So where our own stderr is a terminal, the first rank gets a pseudo
//! terminal of the same size in place of a pipe.

use std::{fs::File, io, os::fd::OwnedFd};

use rustix::{
    fs::{self, Mode, OFlags},
    pty::{self, OpenptFlags},
    termios::{self, OptionalActions},
};

/// Both ends of a pseudo terminal.
#[derive(Debug)]
pub(crate) struct PseudoTerminal {
    /// What the launcher reads.
    pub(crate) ours: File,
    /// What the process writes to.
    pub(crate) theirs: OwnedFd,
}

impl PseudoTerminal {
    /// A terminal as large as the one on our stderr, which passes every byte on as it is.
    pub(crate) fn like_stderr() -> io::Result<Self> {
        let size = termios::tcgetwinsize(io::stderr())?;
        let ours = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        pty::grantpt(&ours)?;
        pty::unlockpt(&ours)?;
        let name = pty::ptsname(&ours, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = fs::open(name, flags, Mode::empty())?;
        let mut settings = termios::tcgetattr(&theirs)?;
        settings.make_raw();
        termios::tcsetattr(&theirs, OptionalActions::Now, &settings)?;
        termios::tcsetwinsize(&theirs, size)?;
        Ok(Self {
            ours: ours.into(),
            theirs,
        })
    }
}
