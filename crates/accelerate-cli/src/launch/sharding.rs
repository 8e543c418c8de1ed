//! What `--dry_run` says about sharding.

use std::num::NonZeroUsize;

use accelerate_plan::{
    Hint as _,
    parallel::{JobFacts, PlanError, Preview, ShardingSettings},
    settings::{MIXED_PRECISION, Sourced},
};

use super::resolve::{Resolved, Way};

/// The plan that the processes will make of what they are told, one line for each part; nothing for a
/// job that is not sharded by settings. A plan that cannot be made is told as the reason why: programs
/// that bring their own sharding may know more.
pub(super) fn lines(resolved: &Resolved) -> Vec<String> {
    match preview(resolved) {
        Ok(Some(preview)) => preview.to_string().lines().map(str::to_owned).collect(),
        Ok(None) => Vec::new(),
        Err(error) => reason(&error),
    }
}

fn preview(resolved: &Resolved) -> Result<Option<Preview>, PlanError> {
    let settings = &resolved.settings;
    let Some(facts) = facts(resolved) else {
        return Ok(None);
    };
    let told = ShardingSettings::of_launch(settings, resolved.strategy, &facts)?;
    told.map(|told| told.preview(&facts)).transpose()
}

/// The job, if its size is known here.
fn facts(resolved: &Resolved) -> Option<JobFacts> {
    let local_world_size = resolved.way.plan().nodes.local();
    let world_size = match &resolved.way {
        Way::Here { plan, .. } => plan.world_size(),
        Way::Machines(machines) => local_world_size.saturating_mul(machines.request().num_nodes),
        Way::Through { .. } => return None,
    };
    let precision = resolved.settings.sourced(&MIXED_PRECISION);
    Some(JobFacts {
        world_size,
        local_world_size: NonZeroUsize::min(local_world_size, world_size),
        mixed_precision: precision.unwrap_or_else(|| Sourced::default_value(Default::default())),
    })
}

fn reason(error: &PlanError) -> Vec<String> {
    let mut lines = vec![format!("cannot be made: {error}")];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        lines.push(format!("because: {error}"));
        cause = error.source();
    }
    lines.extend(error.hint().map(|hint| format!("hint: {hint}")));
    lines
}
