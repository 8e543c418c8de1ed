//! The output of several processes on one terminal: whole lines, each stream where it belongs.

mod console;
mod lines;
mod tail;
mod terminal;

use std::{
    fs::File,
    io::{self, Read, Write as _},
    os::fd::AsFd,
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

pub(crate) use console::{Console, Source, Stream};
use lines::{Lines, Wait};
pub(crate) use tail::Tail;
pub(crate) use terminal::PseudoTerminal;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// Where the output of one stream of one rank goes.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) source: Source,
    /// The terminal, or `None` if this rank is not shown.
    pub(crate) console: Option<Arc<Console>>,
    /// What goes before each line.
    pub(crate) prefix: String,
    /// A file that gets every byte as it is.
    pub(crate) log: Option<File>,
    /// Keeps the last lines for the report.
    pub(crate) tail: Option<Arc<Tail>>,
}

/// Forwards everything from `source` along `route` on a thread of its own; calls `closed` at the
/// end.
pub(crate) fn forward<R>(
    source: R,
    route: Route,
    closed: impl FnOnce() + Send + 'static,
) -> io::Result<()>
where
    R: Read + AsFd + Send + 'static,
{
    thread::Builder::new()
        .name("output".to_owned())
        .spawn(move || {
            Forwarder::new(route).run(source);
            closed();
        })?;
    Ok(())
}

struct Forwarder {
    route: Route,
    lines: Lines,
    /// Whether our own stream has no reader any more.
    broken: bool,
}

impl Forwarder {
    fn new(mut route: Route) -> Self {
        let live = route
            .console
            .as_ref()
            .is_some_and(|console| console.is_terminal(route.source.stream));
        let lines = Lines::new(std::mem::take(&mut route.prefix), live);
        Self {
            route,
            lines,
            broken: false,
        }
    }

    /// Reads until the other end is closed, or until nobody listens on ours: then the process is
    /// told by the pipe, as it would be without us.
    fn run(mut self, mut source: impl Read + AsFd) {
        let mut chunk = vec![0; CHUNK];
        while self.is_heard() {
            match wait_for_data(&source, self.lines.wait()) {
                Ready::Data => match source.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(length) => self.take(&chunk[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                },
                Ready::Idle => {
                    let text = self.lines.when_idle();
                    self.show(&text);
                }
            }
        }
        let rest = self.lines.finish();
        self.show(&rest);
    }

    fn is_heard(&self) -> bool {
        !self.broken || self.route.log.is_some()
    }

    fn take(&mut self, bytes: &[u8]) {
        if let Some(log) = &mut self.route.log
            && log.write_all(bytes).is_err()
        {
            // A full disk must not stop the training.
            self.route.log = None;
        }
        if let Some(tail) = &self.route.tail {
            tail.push(bytes);
        }
        let text = self.lines.push(bytes);
        self.show(&text);
    }

    fn show(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if let Some(console) = &self.route.console
            && console.write(self.route.source, text).is_err()
        {
            self.route.console = None;
            self.broken = true;
        }
    }
}

enum Ready {
    Data,
    Idle,
}

fn wait_for_data(source: &impl AsFd, wait: Wait) -> Ready {
    let timeout = match wait {
        Wait::Forever => None,
        Wait::For(time) => Some(timespec(time)),
    };
    loop {
        let mut watched = [PollFd::new(source, PollFlags::IN)];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(0) => return Ready::Idle,
            Err(Errno::INTR) => {}
            // An error shows again when reading.
            Ok(_) | Err(_) => return Ready::Data,
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
