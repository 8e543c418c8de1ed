//! The terminal while the view has it: taken over whole, and given back as it was, whatever happens.

use std::io::{self, Stdout};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex};

/// What Ctrl-C does while the view is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupts {
    /// It is a key like others.
    AreKeys,
    /// It is a signal, as without the view: a job is to end by it.
    AreSignals,
}

/// The terminal on our output, as long as this lives.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// If it is none, or refuses.
    pub(super) fn open(interrupts: Interrupts) -> io::Result<Self> {
        enable_raw_mode()?;
        let opened = Self::prepared(interrupts);
        if opened.is_err() {
            give_back();
        }
        opened
    }

    fn prepared(interrupts: Interrupts) -> io::Result<Self> {
        if interrupts == Interrupts::AreSignals {
            let input = io::stdin();
            let mut modes = termios::tcgetattr(&input)?;
            modes.local_modes |= LocalModes::ISIG;
            // Whoever stops the job would leave the terminal to the shell as the view has it.
            modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
            termios::tcsetattr(&input, OptionalActions::Now, &modes)?;
        }
        let mut out = io::stdout();
        execute!(out, EnterAlternateScreen)?;
        Ok(Self {
            terminal: Terminal::new(CrosstermBackend::new(out))?,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Nobody is left to be told if this fails.
fn give_back() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
