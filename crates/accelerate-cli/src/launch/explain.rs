//! `--dry_run`: everything that was decided, before a process starts.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use accelerate_plan::launch::LaunchPlan;

use super::resolve::{Resolved, Way};
use crate::{
    configuration::{rows, shown},
    error::Result,
};

/// Writes what would be started to stdout.
///
/// # Errors
/// If the plan is not consistent.
pub(crate) fn explain(resolved: &Resolved) -> Result<ExitCode> {
    let plan = resolved.way.plan();
    let mut text = String::new();
    section(&mut text, "settings", &settings(resolved));
    section(&mut text, "processes", &processes(resolved));
    section(
        &mut text,
        "environment of the first process here",
        &environment(plan)?,
    );
    section(&mut text, "command", &[plan.program.to_string()]);
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
    let chosen = rows(&resolved.settings, false);
    let lines = chosen.iter().map(|row| {
        format!(
            "{} = {}  ({})",
            row.entry.name,
            shown(&row.value),
            row.origin
        )
    });
    lines.chain(resolved.notes.iter().cloned()).collect()
}

fn processes(resolved: &Resolved) -> Vec<String> {
    let plan = resolved.way.plan();
    let handling = &resolved.handling;
    let mut lines = vec![format!("strategy: {:?}", resolved.strategy)];
    match &resolved.way {
        Way::Here { port, .. } => {
            lines.extend(plan.to_string().lines().skip(1).map(str::to_owned));
            if port.reservation.is_some() && !port.is_given {
                lines.push("port: free now, chosen anew at the start".to_owned());
            }
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

fn environment(plan: &LaunchPlan) -> Result<Vec<String>> {
    let ranks = plan.ranks()?;
    let first = ranks
        .first()
        .map(|rank| rank.overlay.clone())
        .unwrap_or_default();
    Ok(first
        .iter()
        .map(|(name, text)| format!("{name}={text}"))
        .collect())
}
