//! Starts the processes of a plan.

use std::{
    fs::File,
    io::{self, IsTerminal as _},
    iter,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use accelerate_plan::launch::{LaunchPlan, PlannedRank};
use rustix::process::{self, Pid};

use super::{
    keeper::Order,
    log_files::LogFolder,
    output::{self, Console, PseudoTerminal, Route, Source, Stream, Tail},
    resolve::Handling,
    signals::{self, Notice},
    tree,
};
use crate::error::{Error, Result};

/// What happens while processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Signal(Notice),
    /// An output stream has ended.
    StreamClosed,
}

/// One started rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) rank: usize,
    pub(crate) keeper: Pid,
    /// Last lines of its stderr, if they pass through the launcher.
    pub(crate) tail: Option<Arc<Tail>>,
}

/// All started ranks and what is needed to watch them.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) events: Receiver<Event>,
    /// Output streams that are still to end.
    pub(crate) open_streams: usize,
    pub(crate) grace: Duration,
    /// Whether the program gets the keys of the terminal itself.
    pub(crate) shares_terminal: bool,
    pub(crate) quiet: bool,
}

/// Starts all processes of the plan.
///
/// # Errors
/// If one cannot be started. Those that were started end when this process does.
pub(crate) fn start(plan: &LaunchPlan, handling: &Handling) -> Result<Job> {
    let (sender, events) = mpsc::channel();
    let signal_sender = sender.clone();
    signals::listen(move |notice| signal_sender.send(Event::Signal(notice)).is_ok()).map_err(
        |source| Error::System {
            doing: "watch for signals",
            source,
        },
    )?;
    tree::adopt_orphans().map_err(|source| Error::System {
        doing: "adopt orphans",
        source,
    })?;

    let alone = plan.num_processes.get() == 1;
    let shares_terminal = alone && io::stdin().is_terminal();
    let piping = match alone && handling.log_dir.is_none() {
        true => None,
        false => Some(Piping::new(handling, plan.node_rank, sender)?),
    };
    let order = Order {
        launcher: process::getpid(),
        grace: handling.grace,
        group: shares_terminal.then(process::getpgrp),
        command: iter::once(plan.program.executable.clone().into_os_string())
            .chain(plan.program.arguments.iter().cloned())
            .collect(),
    };
    let ranks = plan
        .ranks()?
        .iter()
        .map(|planned| start_rank(planned, &order, piping.as_ref()))
        .collect::<Result<Vec<_>>>()?;
    let open_streams = if piping.is_some() { 2 * ranks.len() } else { 0 };
    let Handling { grace, quiet, .. } = *handling;
    Ok(Job {
        ranks,
        events,
        open_streams,
        grace,
        shares_terminal,
        quiet,
    })
}

fn start_rank(planned: &PlannedRank, order: &Order, piping: Option<&Piping>) -> Result<Rank> {
    let rank = planned.topology.rank();
    let failed = |source| Error::Start { rank, source };
    let mut command = order.command().map_err(failed)?;
    command.envs(planned.overlay.iter());
    let local_rank = planned.topology.local_rank();
    if planned.topology.world_size() > 1 {
        command.stdin(stdin_of(local_rank));
    }
    let bars = piping.and_then(|piping| piping.redirect(&mut command, local_rank));
    let mut child = command.spawn().map_err(failed)?;
    let keeper = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let keeper = keeper.ok_or_else(|| failed(io::Error::other("no process number")))?;
    // Our copy of the far end of the terminal goes, so that we notice when the last user is gone.
    drop(command);
    let tail = match piping {
        Some(piping) => Some(piping.connect(&mut child, bars, rank, local_rank)?),
        None => None,
    };
    Ok(Rank { rank, keeper, tail })
}

/// Several processes cannot share a terminal; the first one may read from a file or a pipe.
fn stdin_of(local_rank: usize) -> Stdio {
    match local_rank == 0 && !io::stdin().is_terminal() {
        true => Stdio::inherit(),
        false => Stdio::null(),
    }
}

/// How the output of the ranks passes through the launcher.
#[derive(Debug)]
struct Piping {
    console: Arc<Console>,
    logs: Option<LogFolder>,
    shown: Option<Vec<usize>>,
    prefix: bool,
    node: usize,
    events: Sender<Event>,
}

impl Piping {
    fn new(handling: &Handling, node: usize, events: Sender<Event>) -> Result<Self> {
        let console = Console::of_process().map_err(|source| Error::System {
            doing: "use the output streams",
            source,
        })?;
        Ok(Self {
            console: Arc::new(console),
            logs: handling
                .log_dir
                .as_deref()
                .map(LogFolder::create)
                .transpose()?,
            shown: handling.shown.clone(),
            prefix: handling.prefix,
            node,
            events,
        })
    }

    /// Leads the output of a rank to the launcher. Returns our end of a terminal for progress bars,
    /// which the first rank gets for its stderr where a person would see them.
    fn redirect(&self, command: &mut Command, local_rank: usize) -> Option<File> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let is_seen = local_rank == 0 && self.is_shown(local_rank);
        if !is_seen || !self.console.is_terminal(Stream::Stderr) {
            return None;
        }
        // Where the system has no terminal to give, the pipe serves.
        let PseudoTerminal { ours, theirs } = PseudoTerminal::like_stderr().ok()?;
        command.stderr(theirs);
        Some(ours)
    }

    /// Starts to forward the output of a rank; returns where its last lines on stderr are kept.
    fn connect(
        &self,
        child: &mut Child,
        bars: Option<File>,
        rank: usize,
        local_rank: usize,
    ) -> Result<Arc<Tail>> {
        let files = self
            .logs
            .as_ref()
            .map(|logs| logs.open(local_rank))
            .transpose()?;
        let (out_log, err_log) = files.map(|files| (files.stdout, files.stderr)).unzip();
        let tail = Arc::new(Tail::default());
        let out = Route {
            log: out_log,
            ..self.route(Stream::Stdout, rank, local_rank)
        };
        let err = Route {
            log: err_log,
            tail: Some(Arc::clone(&tail)),
            ..self.route(Stream::Stderr, rank, local_rank)
        };
        let failed = |source| Error::System {
            doing: "forward output",
            source,
        };
        if let Some(source) = child.stdout.take() {
            output::forward(source, out, self.closed()).map_err(failed)?;
        }
        match (bars, child.stderr.take()) {
            (Some(bars), _) => output::forward(bars, err, self.closed()).map_err(failed)?,
            (None, Some(pipe)) => output::forward(pipe, err, self.closed()).map_err(failed)?,
            (None, None) => {}
        }
        Ok(tail)
    }

    fn is_shown(&self, local_rank: usize) -> bool {
        self.shown
            .as_ref()
            .is_none_or(|shown| shown.contains(&local_rank))
    }

    fn route(&self, stream: Stream, rank: usize, local_rank: usize) -> Route {
        let is_shown = self.is_shown(local_rank);
        let prefix = if self.prefix {
            format!("{}:{rank} ", self.node)
        } else {
            String::new()
        };
        Route {
            source: Source { rank, stream },
            console: is_shown.then(|| Arc::clone(&self.console)),
            prefix,
            log: None,
            tail: None,
        }
    }

    fn closed(&self) -> impl FnOnce() + Send + 'static {
        let events = self.events.clone();
        move || {
            // Nobody is left to be told if the launcher has stopped listening.
            let _ = events.send(Event::StreamClosed);
        }
    }
}
