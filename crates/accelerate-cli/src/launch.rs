//! `accelerate launch`: decide what to run, start it, watch it, tell how it ended.
//!
//! The launcher starts one *keeper* per rank ([`keeper`]), which starts the program. All output
//! passes through [`output`] when there are several ranks; a single process has the terminal to
//! itself. [`watch`] waits for the first failure or signal and ends the whole tree of processes.

pub(crate) mod keeper;
mod log_files;
mod output;
mod port;
mod program;
mod resolve;
mod signals;
mod start;
mod tree;
mod verdict;
mod watch;

use std::process::ExitCode;

use accelerate_plan::env::Environment;

use crate::{args::LaunchArgs, error::Result, report};

/// Runs the program that `args` describe until all its processes are gone.
pub(crate) fn run(args: &LaunchArgs) -> Result<ExitCode> {
    let env = Environment::from_process();
    let resolved = resolve::resolve(args, &env)?;
    if !args.quiet && !resolved.notes.is_empty() {
        report::note("values that were not given:", &resolved.notes);
    }
    if args.debug {
        let plan = resolved.plan.to_string();
        let lines: Vec<_> = plan.lines().map(str::to_owned).collect();
        report::note("the launch plan:", &lines);
    }
    let job = start::start(&resolved.plan, &resolved.handling)?;
    let ended = watch::watch(job)?;
    drop(resolved.reservation);
    if !args.quiet {
        verdict::tell(&ended, &resolved.plan.program);
    }
    Ok(verdict::exit_code(&ended))
}
