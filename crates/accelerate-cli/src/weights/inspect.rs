//! `accelerate inspect`: what is in a file or folder, without loading it.

mod entry;
mod folder;
mod listing;
mod text;
mod values;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};

use self::listing::Listing;
use super::{DONE, error::Result, names::Patterns, print, print_json};

/// What was typed after `accelerate inspect`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct InspectArgs {
    /// A safetensors file, a file of `torch.save`, an index, or a folder: of weights, of
    /// `torch.distributed.checkpoint`, of DeepSpeed, of offloaded weights, or of `save_state`
    path: PathBuf,

    /// Show only tensors whose names fit, with `*` for any text; may be given several times
    #[arg(long, value_name = "PATTERN")]
    filter: Vec<String>,

    /// Order of the tensors
    #[arg(long, value_enum, value_name = "ORDER", default_value = "file")]
    sort: Order,

    /// Show totals only
    #[arg(long, conflicts_with = "filter")]
    summary: bool,

    /// Read everything once and compare it with the hashes that `save_state` wrote down
    #[arg(long)]
    verify: bool,

    /// Print everything as JSON instead
    #[arg(long)]
    json: bool,
}

/// How tensors are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// As they lie in the files
    File,
    /// By name
    Name,
    /// The largest first
    Size,
    /// By type, then by name
    Dtype,
}

const AFTER_HELP: &str = "\
Only headers and descriptions are read, and nothing in a pickle is ever executed. Offsets are those of
a tensor's first byte in its file; in a distributed checkpoint, of the stream of `torch.save` with a part.
Totals count what is shown. Names of a distributed checkpoint are told as tied where they have one place
(`convert` writes so); PyTorch stores every name by itself, so of what it wrote nobody can know.

Exit code: 1 if something in a folder is damaged, missing or refused.

JSON (`--json`), sizes in bytes:
  path, format        format: safetensors, torch, index, weights, distributed, zero, offload, folder
  tensors[]           name, dtype, shape, bytes, file, offset (null where the data is packed or lies in
                      several places), strides (only where it does not lie in rows),
                      parts[] of file, offset, bytes, begin, shape (only where there are several)
  dtypes[]            dtype, tensors, elements, bytes
  total_bytes         of all tensors shown
  tied[]              name, tied_to
  values[]            name, value: what is no tensor
  metadata            texts in the headers of safetensors files
  manifest            null, or program, library, num_processes, iteration, saved_at, files
  members[]           the same for each file and folder in a folder
  details[]           name, value: what else is known
  problem             null, or what is wrong";

/// Shows what `args` name.
///
/// # Errors
/// Those of [`WeightsError`](super::error::WeightsError).
pub(crate) fn run(args: &InspectArgs) -> Result<ExitCode> {
    let patterns = Patterns::new(&args.filter)?;
    let mut listing = Listing::of(&args.path, args.verify)?;
    listing.arrange(&patterns, |tensors| match args.sort {
        Order::File => {}
        Order::Name => tensors.sort_by(|one, other| one.name.cmp(&other.name)),
        Order::Size => tensors.sort_by(|one, other| {
            other
                .bytes
                .cmp(&one.bytes)
                .then_with(|| one.name.cmp(&other.name))
        }),
        Order::Dtype => tensors.sort_by(|one, other| {
            one.dtype
                .cmp(other.dtype)
                .then_with(|| one.name.cmp(&other.name))
        }),
    });
    if args.json {
        print_json(&listing)?;
    } else {
        print(&text::text(&listing, args.summary))?;
    }
    Ok(if listing.has_problem() {
        ExitCode::FAILURE
    } else {
        DONE
    })
}
