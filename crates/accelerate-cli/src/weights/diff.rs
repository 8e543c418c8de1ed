//! `accelerate diff`: two checkpoints tensor by tensor.

mod compared;
mod text;

use std::{path::PathBuf, process::ExitCode};

use accelerate_formats::{Checkpoint, OpenOptions, compare::Tolerance};
use clap::Args;

use self::compared::Difference;
use super::{
    DONE,
    error::{Result, WeightsError},
    names::Patterns,
    print, print_json,
};

/// The exit code where the two are not equal.
const DIFFERENT: u8 = 1;
/// The exit code where they could not be compared.
pub(crate) const FAILED: u8 = 2;

/// What was typed after `accelerate diff`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct DiffArgs {
    /// Weights of any kind: a safetensors file, a file of `torch.save`, an index, or a folder of
    /// these, of `torch.distributed.checkpoint` or of DeepSpeed
    #[arg(value_name = "A")]
    first: PathBuf,

    /// The same, of the same kind or another
    #[arg(value_name = "B")]
    second: PathBuf,

    /// Numbers count as equal if they differ by no more than this part of the number in B, plus
    /// `--atol`; without both flags, only equal bits do
    #[arg(long, value_name = "R", value_parser = tolerance)]
    rtol: Option<f64>,

    /// Numbers count as equal if they differ by no more than this, plus `--rtol`
    #[arg(long, value_name = "A", value_parser = tolerance)]
    atol: Option<f64>,

    /// Tensors of other types are not different by that alone: their values are compared
    #[arg(long = "ignore_dtype")]
    ignore_dtype: bool,

    /// Compare only tensors whose names fit, with `*` for any text; may be given several times
    #[arg(long, value_name = "PATTERN")]
    filter: Vec<String>,

    /// Take only the tensors under this key of A, if it is a file of `torch.save` or a distributed
    /// checkpoint
    #[arg(long = "part_a", value_name = "KEY")]
    part_a: Option<String>,

    /// The same for B
    #[arg(long = "part_b", value_name = "KEY")]
    part_b: Option<String>,

    /// Print everything as JSON instead
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Exit code: 0 equal, 1 different, 2 could not be compared.

Tied tensors count under each of their names. Two NaN at one place are equal within a tolerance.

JSON (`--json`):
  a, b, equal, compared    paths, the verdict, how many names both have
  only_a[], only_b[]       names
  tensors[]                those that differ: name, dtype_a, dtype_b, shape_a, shape_b, and values
                           (null where the shapes differ): elements, different, beyond_tolerance,
                           max_absolute, max_relative, nan_a, nan_b, infinite (distances are null
                           where the types are floats of 8 bits or less)";

fn tolerance(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a number, at least 0".to_owned()),
    }
}

/// Compares what `args` name.
///
/// # Errors
/// Those of [`WeightsError`].
pub(crate) fn run(args: &DiffArgs) -> Result<ExitCode> {
    let patterns = Patterns::new(&args.filter)?;
    let open = |path: &PathBuf, part: &Option<String>| {
        Checkpoint::open(path, &OpenOptions::default().with_part(part.clone()))
    };
    let (first, second) = (
        open(&args.first, &args.part_a)?,
        open(&args.second, &args.part_b)?,
    );
    let tolerance = (args.rtol.is_some() || args.atol.is_some()).then(|| Tolerance {
        absolute: args.atol.unwrap_or(0.0),
        relative: args.rtol.unwrap_or(0.0),
    });
    let rules = compared::Rules {
        patterns,
        tolerance,
        ignore_dtype: args.ignore_dtype,
    };
    let mut difference = compared::compare(&*first.source()?, &*second.source()?, &rules)?;
    if !args.filter.is_empty() && difference.is_of_nothing() {
        return Err(WeightsError::NothingFits {
            patterns: args.filter.clone(),
        });
    }
    difference.a = args.first.display().to_string();
    difference.b = args.second.display().to_string();
    show(args, &difference)?;
    Ok(if difference.equal {
        DONE
    } else {
        ExitCode::from(DIFFERENT)
    })
}

fn show(args: &DiffArgs, difference: &Difference) -> Result<()> {
    if args.json {
        print_json(difference)
    } else {
        print(&text::text(difference))
    }
}
