//! `--dry_run`: everything that was decided, before a process starts.

use std::{
    ffi::OsString,
    fmt::Write as _,
    io::{self, Write as _},
    iter,
    process::ExitCode,
};

use accelerate_plan::{
    env::{
        GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RANK, RESTART_COUNT, ROLE_RANK,
        ROLE_WORLD_SIZE, USE_AGENT_STORE, WORLD_SIZE,
    },
    launch::{Nodes, Program},
};

use super::{
    resolve::{Resolved, Way},
    sharding,
};
use crate::{
    configuration::{rows, settle_device},
    error::Result,
    report,
};

/// Variables that the machines of a job agree on.
static AGREED: [&str; 10] = [
    RANK.name(),
    WORLD_SIZE.name(),
    GROUP_RANK.name(),
    GROUP_WORLD_SIZE.name(),
    ROLE_RANK.name(),
    ROLE_WORLD_SIZE.name(),
    MASTER_ADDR.name(),
    MASTER_PORT.name(),
    USE_AGENT_STORE.name(),
    RESTART_COUNT.name(),
];

/// Writes what would be started to stdout.
///
/// # Errors
/// If the plan is not consistent.
pub(crate) fn explain(resolved: &Resolved) -> Result<ExitCode> {
    let plan = resolved.way.plan();
    let mut text = String::new();
    section(&mut text, "settings", &settings(resolved));
    if !resolved.unused.is_empty() {
        section(&mut text, "without an effect", &resolved.unused);
    }
    section(&mut text, "processes", &processes(resolved));
    let sharding = sharding::lines(resolved);
    if !sharding.is_empty() {
        section(&mut text, "plan", &sharding);
    }
    let environment_of = match resolved.way {
        Way::Through { .. } => "environment of the command",
        Way::Here { .. } | Way::Machines(_) => "environment of the first process here",
    };
    section(&mut text, environment_of, &environment(resolved)?);
    section(&mut text, "command", &[command(&plan.program)]);
    // A closed pipe is the reader's wish.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{title}:");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

/// What somebody chose, and what was chosen for them.
fn settings(resolved: &Resolved) -> Vec<String> {
    let mut settings = resolved.settings.clone();
    settle_device(&mut settings);
    let chosen = rows(&settings, false);
    let lines = chosen
        .iter()
        .map(|row| format!("{} = {}  ({})", row.name(), row.shown(), row.remark()));
    lines.chain(resolved.notes.iter().cloned()).collect()
}

fn processes(resolved: &Resolved) -> Vec<String> {
    let plan = resolved.way.plan();
    let handling = &resolved.handling;
    let mut lines = vec![format!("strategy: {}", resolved.strategy)];
    match &resolved.way {
        Way::Here { port, .. } => {
            lines.extend(plan.to_string().lines().skip(1).map(str::to_owned));
            if port.reservation.is_some() && !port.is_given {
                lines.push("port: free now, chosen anew at the start".to_owned());
            }
        }
        Way::Through { plan, .. } => {
            let launcher = plan.program.executable.display();
            lines.push(format!("started and numbered by `{launcher}`"));
        }
        Way::Machines(machines) => {
            let request = machines.request();
            lines.push(format!("processes on this machine: {}", plan.nodes.local()));
            lines.push(format!(
                "machines: {}, which meet at {}",
                request.num_nodes, request.endpoint
            ));
            lines.push("ranks, address and port of rank 0: agreed when they have met".to_owned());
            lines.push(format!("threads per process: {}", plan.threads));
        }
    }
    lines.push(format!("restarts: at most {}", handling.max_restarts));
    lines.push(format!(
        "time to end after SIGTERM: {} s",
        handling.grace.as_secs_f64()
    ));
    if let Some(limit) = handling.time_limit {
        lines.push(format!("time limit: {} s", limit.as_secs_f64()));
    }
    if let Some(folder) = &handling.log_dir {
        lines.push(format!("log files below `{}`", folder.display()));
    }
    lines
}

/// The command as a shell reads it.
fn command(program: &Program) -> String {
    let arguments = program.arguments.iter().map(OsString::as_os_str);
    report::command(iter::once(program.executable.as_os_str()).chain(arguments))
}

/// What is not known before machines have met is named only.
fn environment(resolved: &Resolved) -> Result<Vec<String>> {
    let mut plan = resolved.way.plan().clone();
    let mut open: &[&str] = &[];
    if let Way::Machines(machines) = &resolved.way {
        let counts = vec![plan.nodes.local(); machines.request().num_nodes.get()];
        plan.nodes = Nodes::new(counts, 0).unwrap_or(plan.nodes);
        open = &AGREED;
    }
    let ranks = plan.ranks()?;
    let first = ranks
        .first()
        .map(|rank| rank.overlay.clone())
        .unwrap_or_default();
    Ok(first
        .iter()
        .map(|(name, text)| match open.contains(&name) {
            true => format!("{name}: agreed when the machines have met"),
            false => format!("{name}={text}"),
        })
        .collect())
}
