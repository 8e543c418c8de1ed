//! Logging: messages come once, or from each process in order, and say who they are from.
//! `ACCELERATE_LOG_LEVEL` sets how much is said.

pub(crate) mod accelerated;
pub(crate) mod plain;

use accelerate::Result;
use accelerate::logging::level_from_environment;

use crate::sentiment;

/// Messages go to standard error.
fn start_log() -> Result<()> {
    sentiment::start_log(level_from_environment()?.unwrap_or(tracing::Level::INFO));
    Ok(())
}
