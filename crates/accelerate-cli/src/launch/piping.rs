//! How the output of the ranks passes through the launcher.

use std::{
    fs::File,
    io::{self, IsTerminal as _, PipeReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Once, mpsc::Sender},
};

use rustix::fs::fstat;

use super::{
    events::Event,
    handling::Handling,
    log_files::RankFolder,
    output::{self, Console, PseudoTerminal, Route, Shape, Source, Stream, Tail},
};
use crate::error::{Error, Result};

/// Which streams pass through the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// None: the single process has the terminal to itself.
    None,
    /// Stderr, for the report about a failure, as it comes. Stdout is inherited.
    Stderr,
    /// Both in one pipe, as they come: they lead to the same place, where their order counts.
    Joined,
    /// Both, as they come.
    BothAsTheyCome,
    /// Both, in whole lines.
    Both,
}

impl Passage {
    /// What is right for the ranks of one attempt.
    pub(crate) fn choose(is_alone: bool, has_logs: bool) -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        match (is_alone, has_logs) {
            (false, _) => Self::Both,
            (true, true) => Self::BothAsTheyCome,
            (true, false) if stderr.is_terminal() => Self::None,
            (true, false) => match (fstat(stdout), fstat(stderr)) {
                (Ok(out), Ok(err)) if (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino) => {
                    Self::Joined
                }
                _ => Self::Stderr,
            },
        }
    }

    /// Number of streams of each rank that the launcher reads.
    pub(crate) fn streams(self) -> usize {
        match self {
            Self::None => 0,
            Self::Stderr | Self::Joined => 1,
            Self::BothAsTheyCome | Self::Both => 2,
        }
    }
}

/// What the launcher has seen of the output of one rank.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) stdout: Arc<Tail>,
    pub(crate) stderr: Arc<Tail>,
}

/// The passage of all ranks of one attempt.
#[derive(Debug)]
pub(crate) struct Piping<'a> {
    pub(crate) passage: Passage,
    pub(crate) console: Arc<Console>,
    pub(crate) handling: &'a Handling,
    pub(crate) node: usize,
    pub(crate) attempt: usize,
    pub(crate) events: Sender<Event>,
    pub(crate) log_warning: Arc<Once>,
}

/// Our ends of what was put in place of the streams of one rank, beyond plain pipes.
#[derive(Debug)]
pub(crate) enum OurEnd {
    Pipes,
    Joined(PipeReader),
    /// A terminal for the progress bars on stderr.
    Terminal(File),
}

impl Piping<'_> {
    /// Leads the output of a rank to the launcher.
    ///
    /// # Errors
    /// If the system gives no pipe.
    pub(crate) fn redirect(&self, command: &mut Command, local_rank: usize) -> io::Result<OurEnd> {
        match self.passage {
            Passage::None => {}
            Passage::Stderr => {
                command.stderr(Stdio::piped());
            }
            Passage::Joined => {
                let (reader, writer) = io::pipe()?;
                command.stdout(writer.try_clone()?).stderr(writer);
                return Ok(OurEnd::Joined(reader));
            }
            Passage::BothAsTheyCome | Passage::Both => {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                return Ok(self.terminal_for_bars(command, local_rank));
            }
        }
        Ok(OurEnd::Pipes)
    }

    /// The first rank gets a terminal for its stderr where a person would see progress bars.
    fn terminal_for_bars(&self, command: &mut Command, local_rank: usize) -> OurEnd {
        let is_seen = local_rank == 0 && self.is_shown(local_rank);
        // While a view has the terminal, nobody would see progress bars.
        let is_shown = self.console.is_terminal(Stream::Stderr) && !self.console.is_held();
        if !is_seen || !is_shown {
            return OurEnd::Pipes;
        }
        match PseudoTerminal::like_stderr() {
            Ok(PseudoTerminal { ours, theirs }) => {
                command.stderr(theirs);
                OurEnd::Terminal(ours)
            }
            // Where the system has no terminal to give, the pipe serves.
            Err(_) => OurEnd::Pipes,
        }
    }

    /// Starts to forward the output of a rank; returns what will be known of it, if it passes at
    /// all.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn connect(
        &self,
        child: &mut Child,
        our_end: OurEnd,
        rank: usize,
        local_rank: usize,
        logs: Option<RankFolder>,
    ) -> Result<Option<Seen>> {
        let (out_log, err_log) = logs.map_or((None, None), |logs| (logs.stdout, logs.stderr));
        let out = Route {
            log: out_log,
            ..self.route(Stream::Stdout, rank, local_rank)
        };
        let err = Route {
            log: err_log,
            ..self.route(Stream::Stderr, rank, local_rank)
        };
        let seen = Seen {
            stdout: Arc::clone(&out.tail),
            stderr: Arc::clone(&err.tail),
        };
        self.forward(child, our_end, out, err)
            .map_err(|source| Error::System {
                doing: "forward output",
                source,
            })?;
        Ok((self.passage != Passage::None).then_some(seen))
    }

    fn forward(
        &self,
        child: &mut Child,
        our_end: OurEnd,
        out: Route,
        err: Route,
    ) -> io::Result<()> {
        if let Some(source) = child.stdout.take() {
            output::forward(source, out, self.closed())?;
        }
        match (our_end, child.stderr.take()) {
            (OurEnd::Terminal(bars), _) => output::forward(bars, err, self.closed()),
            (OurEnd::Joined(both), _) => output::forward(both, err, self.closed()),
            (OurEnd::Pipes, Some(pipe)) => output::forward(pipe, err, self.closed()),
            (OurEnd::Pipes, None) => Ok(()),
        }
    }

    fn is_shown(&self, local_rank: usize) -> bool {
        let shown = self.handling.shown.as_ref();
        shown.is_none_or(|shown| shown.contains(&local_rank))
    }

    fn route(&self, stream: Stream, rank: usize, local_rank: usize) -> Route {
        let is_shown = self.is_shown(local_rank);
        let shape = match (self.passage, self.handling.prefix) {
            (Passage::Both, true) => Shape::Lines {
                prefix: format!("{}:{rank} ", self.node),
            },
            (Passage::Both, false) => Shape::Lines {
                prefix: String::new(),
            },
            _ => Shape::AsTheyCome,
        };
        Route {
            source: Source { rank, stream },
            console: is_shown.then(|| Arc::clone(&self.console)),
            shape,
            log: None,
            log_warning: Arc::clone(&self.log_warning),
            tail: Arc::default(),
        }
    }

    fn closed(&self) -> impl FnOnce() + Send + 'static {
        let (events, attempt) = (self.events.clone(), self.attempt);
        move || {
            // Nobody is left to be told if the launcher has stopped listening.
            let _ = events.send(Event::StreamClosed { attempt });
        }
    }
}
