//! The launcher's own stdout and stderr, shared by all ranks.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write as _},
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::held::Held;

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// One output stream of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) rank: usize,
    pub(crate) stream: Stream,
}

/// Both streams behind one lock: they often lead to the same terminal or file, and a line of one
/// must not cut a line of the other.
#[derive(Debug)]
pub(crate) struct Console {
    sinks: Mutex<Sinks>,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
}

#[derive(Debug)]
struct Sinks {
    stdout: File,
    stderr: File,
    /// What waits while a view has the terminal.
    held: Option<Held>,
    /// Who wrote the unfinished line on the screen.
    open: Option<OpenLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpenLine {
    source: Source,
    /// Whether its owner will draw it again, as a progress bar is.
    redrawn: bool,
}

impl OpenLine {
    /// The line that `text` leaves open.
    fn after(text: &[u8], source: Source) -> Option<Self> {
        let redrawn = text.iter().any(|byte| matches!(byte, b'\r' | b'\x1b'));
        (text.last() != Some(&b'\n')).then_some(Self { source, redrawn })
    }

    /// What makes room for the text of another source.
    fn closing(self) -> &'static [u8] {
        match self.redrawn {
            true => b"\r\x1b[K",
            false => b"\n",
        }
    }
}

impl Console {
    /// The streams of this process.
    pub(crate) fn of_process() -> io::Result<Self> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self {
            stdout_is_terminal: stdout.is_terminal(),
            stderr_is_terminal: stderr.is_terminal(),
            sinks: Mutex::new(Sinks {
                stdout,
                stderr,
                held: None,
                open: None,
            }),
        })
    }

    /// Whether a person watches this stream.
    pub(crate) fn is_terminal(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.stdout_is_terminal,
            Stream::Stderr => self.stderr_is_terminal,
        }
    }

    /// From here on keeps what is meant for a terminal, until it is released.
    pub(crate) fn hold(&self) {
        self.sinks().held.get_or_insert_default();
    }

    /// Whether what is meant for a terminal is kept.
    pub(crate) fn is_held(&self) -> bool {
        self.sinks().held.is_some()
    }

    /// The last lines of what is kept, at most so many.
    pub(crate) fn held_lines(&self, most: usize) -> Vec<String> {
        let sinks = self.sinks();
        sinks
            .held
            .as_ref()
            .map_or_else(Vec::new, |held| held.last_lines(most))
    }

    /// Writes what was kept and keeps no more.
    pub(crate) fn release(&self) {
        let mut sinks = self.sinks();
        let Some(held) = sinks.held.take() else {
            return;
        };
        for (stream, text) in held.into_pieces() {
            let sink = match stream {
                Stream::Stdout => &mut sinks.stdout,
                Stream::Stderr => &mut sinks.stderr,
            };
            // A terminal that has gone needs nothing more.
            let _ = write_all(sink, &text);
        }
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a text in one piece. On a terminal it does not run into an unfinished line of another
    /// source.
    ///
    /// # Errors
    /// If the stream is closed or cannot take more.
    pub(super) fn write(&self, source: Source, text: &[u8]) -> io::Result<()> {
        let mut sinks = self.sinks();
        let is_terminal = self.is_terminal(source.stream);
        if let (true, Some(held)) = (is_terminal, &mut sinks.held) {
            held.push(source.stream, text);
            return Ok(());
        }
        let open = sinks
            .open
            .filter(|open| is_terminal && open.source != source);
        if is_terminal {
            sinks.open = OpenLine::after(text, source);
        }
        let sink = match source.stream {
            Stream::Stdout => &mut sinks.stdout,
            Stream::Stderr => &mut sinks.stderr,
        };
        match open {
            Some(open) => write_all(sink, &[open.closing(), text].concat()),
            None => write_all(sink, text),
        }
    }
}

/// Like `write_all`, but waits where another program has made the stream non-blocking.
fn write_all(sink: &mut File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match sink.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(sink, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_line_makes_room_according_to_its_kind() {
        let source = Source {
            rank: 0,
            stream: Stream::Stderr,
        };
        assert_eq!(OpenLine::after(b"done\n", source), None);
        let bar = OpenLine::after(b"\r 10%", source).unwrap();
        assert_eq!(bar.closing(), b"\r\x1b[K");
        let prompt = OpenLine::after(b"first\nname? ", source).unwrap();
        assert_eq!(prompt.closing(), b"\n");
    }
}
