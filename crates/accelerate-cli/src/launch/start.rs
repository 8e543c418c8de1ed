//! Starts the processes of a plan.

use std::{
    io::{self, IsTerminal as _},
    iter,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::SystemTime,
};

use accelerate_plan::{
    env::{
        ERROR_FILE, EnvOverlay, Environment, MAX_RESTARTS, PYTHONFAULTHANDLER, RESTART_COUNT,
        RUN_ID, Variable,
    },
    launch::{LaunchPlan, PlannedRank},
};
use rustix::process::{self, Pid};

use super::{
    arguments,
    error_file::ErrorFile,
    keeper::{Order, Terms},
    log_files::RankFolder,
    memory_kills,
    piping::{Passage, Piping, Seen},
    supervisor::Supervisor,
    tree::Exit,
};
use crate::{
    error::{Error, Result},
    machine::CpuList,
};

/// All ranks of this machine, started once.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// From 0.
    pub(crate) number: usize,
    pub(crate) ranks: Vec<Rank>,
    /// Processes of the job on all machines.
    pub(crate) world_size: usize,
    pub(crate) started: SystemTime,
    /// How often the system had killed for lack of memory before.
    pub(crate) memory_kills: Option<u64>,
    /// Output streams that are still to end.
    pub(crate) open_streams: usize,
    /// Whether the program gets the keys of the terminal itself.
    pub(crate) shares_terminal: bool,
}

/// One started rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) rank: usize,
    pub(crate) local_rank: usize,
    pub(crate) keeper: Pid,
    /// The program, once its keeper has told.
    pub(crate) program: Option<Pid>,
    /// Its output, if that passes through the launcher.
    pub(crate) seen: Option<Seen>,
    /// Where its whole stderr is.
    pub(crate) stderr_log: Option<PathBuf>,
    pub(crate) error_file: Option<ErrorFile>,
    /// How it ended, once it has.
    pub(crate) end: Option<End>,
}

/// The end of one rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) exit: Exit,
    pub(crate) at: SystemTime,
    /// Whether the launcher had asked for it.
    pub(crate) by_launcher: bool,
}

impl Attempt {
    /// Starts all processes of the plan.
    ///
    /// # Errors
    /// If a log file cannot be made: then nothing was started. If a process cannot be started:
    /// those that were started end when this process does.
    pub(crate) fn start(
        supervisor: &Supervisor<'_>,
        plan: &LaunchPlan,
        number: usize,
    ) -> Result<Self> {
        let world_size = plan.world_size().get();
        let is_alone = world_size == 1;
        let is_watched = supervisor.console.is_held();
        let shares_terminal = is_alone && io::stdin().is_terminal() && !is_watched;
        let starter = Starter {
            supervisor,
            env: Environment::from_process(),
            number,
            piping: Piping {
                passage: Passage::choose(is_alone, supervisor.logs.is_some() || is_watched),
                console: Arc::clone(&supervisor.console),
                handling: supervisor.handling,
                node: plan.nodes.this(),
                attempt: number,
                events: supervisor.sender.clone(),
                log_warning: Arc::clone(&supervisor.log_warning),
            },
            order: Order {
                terms: Terms {
                    launcher: process::getpid().as_raw_nonzero(),
                    grace: supervisor.handling.grace,
                    group: shares_terminal.then(|| process::getpgrp().as_raw_nonzero()),
                    news: supervisor.keepers.address(),
                    cpus: CpuList::default(),
                    errors: None,
                },
                command: iter::once(plan.program.executable.clone().into_os_string())
                    .chain(plan.program.arguments.iter().cloned())
                    .collect(),
            },
        };
        let (started, memory_kills) = (SystemTime::now(), memory_kills::count());
        let ranks = starter.start(&plan.ranks()?)?;
        Ok(Self {
            number,
            world_size,
            started,
            memory_kills,
            open_streams: starter.piping.passage.streams() * ranks.len(),
            ranks,
            shares_terminal,
        })
    }
}

struct Starter<'a> {
    supervisor: &'a Supervisor<'a>,
    /// What the ranks inherit.
    env: Environment,
    number: usize,
    piping: Piping<'a>,
    /// The same for all ranks, but for the CPUs, the error file and placeholders in arguments.
    order: Order,
}

/// The files of one rank.
struct Files {
    logs: Option<RankFolder>,
    error: Option<ErrorFile>,
}

impl Starter<'_> {
    fn start(&self, planned: &[PlannedRank]) -> Result<Vec<Rank>> {
        let files: Vec<Files> = planned
            .iter()
            .map(|planned| self.files(planned))
            .collect::<Result<_>>()?;
        let pairs = planned.iter().zip(files);
        pairs
            .map(|(planned, files)| self.start_rank(planned, files))
            .collect()
    }

    fn files(&self, planned: &PlannedRank) -> Result<Files> {
        let logs = match &self.supervisor.logs {
            Some(folder) => Some(folder.open(self.number, planned.topology.local_rank())?),
            None => None,
        };
        let is_alone = planned.topology.world_size() == 1;
        let error = match &logs {
            Some(folder) => Some(ErrorFile::in_folder(&folder.path)),
            None if is_alone && self.is_set(&ERROR_FILE) => None,
            // A rank without such a file is a lesser evil than none.
            None => ErrorFile::kept().ok(),
        };
        Ok(Files { logs, error })
    }

    fn start_rank(&self, planned: &PlannedRank, files: Files) -> Result<Rank> {
        let rank = planned.topology.rank();
        let local_rank = planned.topology.local_rank();
        let failed = |source| Error::Start { rank, source };
        let mut command = self
            .command(planned, files.error.as_ref())
            .map_err(failed)?;
        let our_end = self
            .piping
            .redirect(&mut command, local_rank)
            .map_err(failed)?;
        let mut child = command.spawn().map_err(failed)?;
        let keeper = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let keeper = keeper.ok_or_else(|| failed(io::Error::other("no process number")))?;
        // Our copies of the far ends go, so that we notice when the last user is gone.
        drop(command);
        let stderr_log = files.logs.as_ref().and_then(|logs| logs.stderr.as_ref());
        let stderr_log = stderr_log.map(|log| log.path.clone());
        let seen = self
            .piping
            .connect(&mut child, our_end, rank, local_rank, files.logs)?;
        Ok(Rank {
            rank,
            local_rank,
            keeper,
            program: None,
            seen,
            stderr_log,
            error_file: files.error,
            end: None,
        })
    }

    fn command(&self, planned: &PlannedRank, errors: Option<&ErrorFile>) -> io::Result<Command> {
        let handling = self.supervisor.handling;
        let local_rank = planned.topology.local_rank();
        let placement = handling.placement.as_ref();
        let mut order = self.order.clone();
        if planned.topology.world_size() > 1 {
            // The first word is the program itself.
            for argument in order.command.iter_mut().skip(1) {
                *argument = arguments::for_rank(argument, local_rank);
            }
        }
        if let Some(placement) = placement {
            order.terms.cpus = placement.of(local_rank);
        }
        order.terms.errors = errors.and_then(ErrorFile::terms).cloned();
        let mut command = order.command()?;
        match errors {
            Some(ErrorFile::Logged(path)) => command.env(ERROR_FILE.name(), path),
            // What an outer launcher says stays in force.
            None if planned.topology.world_size() == 1 => &mut command,
            // The keeper names it.
            Some(ErrorFile::Kept { .. }) | None => command.env_remove(ERROR_FILE.name()),
        };
        command.envs(self.overlay(planned).iter());
        if handling.time_limit.is_some() && !self.is_set(&PYTHONFAULTHANDLER) {
            command.env(PYTHONFAULTHANDLER.name(), "1");
        }
        if planned.topology.world_size() > 1 || self.supervisor.console.is_held() {
            command.stdin(stdin_of(local_rank));
        }
        Ok(command)
    }

    /// Whether the ranks inherit a variable; one that cannot be read is set too.
    fn is_set(&self, variable: &Variable<String>) -> bool {
        !matches!(self.env.get(variable), Ok(None))
    }

    /// What the plan says, and what only the attempt knows.
    fn overlay(&self, planned: &PlannedRank) -> EnvOverlay {
        let handling = self.supervisor.handling;
        let mut overlay = planned.overlay.clone();
        let is_group = planned.topology.world_size() > 1;
        if is_group {
            overlay.set(&RUN_ID, &handling.run_id);
        }
        if is_group || handling.max_restarts > 0 {
            overlay.set(&RESTART_COUNT, &self.number);
            overlay.set(&MAX_RESTARTS, &handling.max_restarts);
        }
        overlay
    }
}

/// Several processes cannot share a terminal, nor one with a view; the first one may read from a file
/// or a pipe.
fn stdin_of(local_rank: usize) -> Stdio {
    match local_rank == 0 && !io::stdin().is_terminal() {
        true => Stdio::inherit(),
        false => Stdio::null(),
    }
}
