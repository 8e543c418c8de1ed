//! Commands on files of weights: `merge-weights`, `convert`, `inspect` and `diff`.
//!
//! None of them loads a checkpoint: files are mapped, and data goes through memory a few rows at a
//! time. What is written appears when it is whole. Formats are the business of `accelerate-formats`;
//! here is what was typed, what is said, and what becomes of the folders.

pub(crate) mod convert;
pub(crate) mod diff;
mod error;
pub(crate) mod inspect;
pub(crate) mod merge;
mod names;
mod target;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use accelerate_formats::{ShardSize, source::TensorSource};
use accelerate_plan::size_text::Size;
use serde::Serialize;

use self::error::{Result, WeightsError};

/// Prints data. Whoever closes the pipe has seen enough.
fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(WeightsError::Output),
    }
}

fn print_json(value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(value);
    let json = json.map_err(|error| WeightsError::Output(error.into()))?;
    print(&(json + "\n"))
}

/// `26 tensors (413.18 MB)`.
fn amount(source: &dyn TensorSource) -> String {
    let headers = source.headers();
    let bits = headers
        .iter()
        .filter_map(|header| header.dtype.bits_of(&header.shape));
    let bytes: u64 = bits.map(|bits| bits as u64 / 8).sum();
    count(headers.len(), "tensor", bytes)
}

fn count(number: usize, what: &str, bytes: u64) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural} ({})", Size::Whole(bytes))
}

fn shard_size(text: &str) -> std::result::Result<ShardSize, String> {
    text.parse::<ShardSize>().map_err(|fault| fault.to_string())
}

/// What a command ends with when all went well.
const DONE: ExitCode = ExitCode::SUCCESS;
