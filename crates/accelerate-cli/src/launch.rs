//! `accelerate launch`: decide what to run, start it, watch it, tell how it ended.
//!
//! The launcher starts one *keeper* per rank ([`keeper`]), which starts the program. All output
//! passes through [`output`] when there are several ranks; a single process has the terminal to
//! itself. [`watch`] waits for the first failure or signal and ends the whole tree of processes;
//! [`attempts`] starts it again if it may.

mod activity;
mod arguments;
mod attempts;
mod detected;
mod ended;
mod error_file;
mod events;
mod explain;
mod handling;
pub(crate) mod hosts;
mod job_report;
mod job_view;
pub(crate) mod keeper;
mod keeper_news;
mod log_files;
mod machines;
mod memory_kills;
mod output;
mod piping;
mod placement;
mod port;
mod program;
pub(crate) mod rendezvous;
mod resolve;
mod sharding;
mod signals;
mod start;
mod step;
pub(crate) mod streams;
mod supervisor;
mod through;
mod tree;
mod unused;
mod verdict;
mod watch;

pub(crate) use detected::with_detected;
pub(crate) use program::{find_on_path, interpreter, is_executable};
pub(crate) use tree::Exit;

use std::process::ExitCode;

use accelerate_plan::{env::Environment, settings};

use self::{
    attempts::OneMachine,
    resolve::{Resolved, Way},
};
use crate::{args::LaunchArgs, error::Result, report};

/// Runs the program that `args` describe until all its processes are gone, or explains what would be
/// run.
pub(crate) fn run(args: &LaunchArgs) -> Result<ExitCode> {
    let env = Environment::from_process();
    let resolved = resolve::resolve(args, &env)?;
    if args.dry_run {
        return explain::explain(&resolved);
    }
    let mut found = resolved.notes.clone();
    found.extend(detected::lines(&resolved.settings));
    if !args.quiet && !found.is_empty() {
        report::note("values that were not given:", &found);
    }
    if !args.quiet && !resolved.unused.is_empty() {
        report::note("given, but without an effect:", &resolved.unused);
    }
    if !args.quiet && resolved.settings.is_on(&settings::DEBUG) {
        let plan = resolved.way.plan().to_string();
        let lines: Vec<_> = plan.lines().map(str::to_owned).collect();
        report::note("the launch plan:", &lines);
    }
    let Resolved { way, handling, .. } = resolved;
    let program = way.plan().program.clone();
    match way {
        Way::Here { plan, port } => {
            let mut rounds = OneMachine::new(*plan, port.reservation, port.is_given);
            attempts::run(&program, &mut rounds, &handling)
        }
        Way::Through { plan, reservation } => {
            let mut rounds = OneMachine::new(*plan, reservation, true);
            attempts::run(&program, &mut rounds, &handling)
        }
        Way::Machines(mut machines) => attempts::run(&program, &mut *machines, &handling),
    }
}
