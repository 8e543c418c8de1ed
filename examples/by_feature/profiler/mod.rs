//! Profiling: which operations a step consists of, how long they take, and a trace of each process
//! for `chrome://tracing` or Perfetto.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::Args;

use crate::sentiment;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// How many steps are recorded, behind one that warms up.
    #[arg(long, default_value = "2")]
    active: NonZeroU64,
    /// How many rows of the table are shown.
    #[arg(long, default_value = "10")]
    rows: usize,
    /// A folder for the traces of all processes.
    #[arg(long)]
    trace_dir: Option<PathBuf>,
}
