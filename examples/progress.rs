//! Bars that show how far an epoch is.

use std::io::{self, IsTerminal as _};

use accelerate::Accelerator;
use indicatif::{ProgressBar, ProgressStyle};

const LOOK: &str = "{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed}<{eta}]";

/// A bar of so many steps with `name` before it.
pub fn bar(name: impl Into<String>, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template(LOOK);
    ProgressBar::new(steps as u64)
        .with_prefix(name.into())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// As [`bar`], on the first rank of each machine only; the others draw nothing.
pub fn bar_of_machine(
    accelerator: &Accelerator,
    name: impl Into<String>,
    steps: usize,
) -> ProgressBar {
    if accelerator.is_local_main_process() {
        bar(name, steps)
    } else {
        ProgressBar::hidden()
    }
}

/// Warnings of the library go to standard error.
pub fn start_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
