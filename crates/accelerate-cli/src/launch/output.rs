//! The output of several processes on one terminal: whole lines, each stream where it belongs.

mod console;
mod held;
mod lines;
mod tail;
mod terminal;

use std::{
    io::{self, Read, Write as _},
    os::fd::AsFd,
    sync::{Arc, Once},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::log_files::LogFile;
use crate::report;

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
    pub(crate) shape: Shape,
    /// A file that gets every byte as it is.
    pub(crate) log: Option<LogFile>,
    /// Says once for all files of a job that one cannot be written.
    pub(crate) log_warning: Arc<Once>,
    /// Keeps the last lines for the report.
    pub(crate) tail: Arc<Tail>,
}

/// How bytes are cut before they are shown.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Not at all: there is nobody else.
    AsTheyCome,
    /// Into whole lines, with this text before each.
    Lines { prefix: String },
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
    /// Cuts the bytes; `None` if they are shown as they come.
    lines: Option<Lines>,
    /// Whether our own stream has no reader any more.
    broken: bool,
}

impl Forwarder {
    fn new(route: Route) -> Self {
        let live = route
            .console
            .as_ref()
            .is_some_and(|console| console.is_terminal(route.source.stream));
        let lines = match &route.shape {
            Shape::AsTheyCome => None,
            Shape::Lines { prefix } => Some(Lines::new(prefix.clone(), live)),
        };
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
            let wait = self.lines.as_ref().map_or(Wait::Forever, Lines::wait);
            match wait_for_data(&source, wait) {
                Ready::Data => match source.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(length) => self.take(&chunk[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                },
                Ready::Idle => {
                    let text = self.lines.as_mut().map(Lines::when_idle);
                    self.show(&text.unwrap_or_default());
                }
            }
        }
        let rest = self.lines.as_mut().map(Lines::finish);
        self.show(&rest.unwrap_or_default());
    }

    fn is_heard(&self) -> bool {
        !self.broken || self.route.log.is_some()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.log(bytes);
        self.route.tail.push(bytes);
        match &mut self.lines {
            Some(lines) => {
                let text = lines.push(bytes);
                self.show(&text);
            }
            None => self.show(bytes),
        }
    }

    /// Copies bytes to the log file. A full disk must not stop the training.
    fn log(&mut self, bytes: &[u8]) {
        let Some(log) = &mut self.route.log else {
            return;
        };
        if let Err(error) = log.file.write_all(bytes) {
            let path = log.path.display();
            self.route.log_warning.call_once(|| {
                report::say(&format!(
                    "warning: cannot write the log file `{path}`; the job goes on without the \
                     log files that fail\n  caused by: {error}\n"
                ));
            });
            self.route.log = None;
        }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_full_disk_ends_the_log_file_and_nothing_else() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut forwarder = Forwarder::new(Route {
            source: Source {
                rank: 0,
                stream: Stream::Stdout,
            },
            console: None,
            shape: Shape::AsTheyCome,
            log: Some(LogFile {
                file: full,
                path: "/dev/full".into(),
            }),
            log_warning: Arc::new(Once::new()),
            tail: Arc::default(),
        });
        forwarder.take(b"first\n");
        assert!(forwarder.route.log.is_none());
        assert!(forwarder.route.log_warning.is_completed());
        forwarder.take(b"second\n");
        assert_eq!(forwarder.route.tail.lines(), ["first", "second"]);
    }
}
