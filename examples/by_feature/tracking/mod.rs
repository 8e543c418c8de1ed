//! Tracking: settings and curves go where people look at them, from the main process alone.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::path::PathBuf;

use clap::Args;

use crate::sentiment;

/// The job, and what to log with.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) sentiment: sentiment::Arguments,
    /// Trackers by name: `local`, `tensorboard`, `wandb` and others, or `all`.
    #[arg(long, default_value = "local", value_delimiter = ',')]
    pub(crate) log_with: Vec<String>,
    /// Where trackers write files.
    #[arg(long, default_value = "runs")]
    pub(crate) logging_dir: PathBuf,
}
