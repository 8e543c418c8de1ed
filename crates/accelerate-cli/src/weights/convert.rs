//! `accelerate convert`: weights of one format into another.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use accelerate_formats::{
    CastSource, Checkpoint, Dtype, Error as FormatsError, FloatType, Metadata, OpenOptions,
    ShardFormat, ShardSize, ShardedOptions, source::TensorSource, write_distributed,
    write_sharded_with, write_weight_file,
};
use clap::{Args, ValueEnum};

use super::{
    DONE, amount,
    error::{Result, WeightsError},
    merge::{files, warn_of_other},
    print, shard_size,
    target::Target,
};
use crate::report;

/// The key below which the weights of a model lie in a distributed checkpoint, as FSDP writes it.
const MODEL_KEY: &str = "model";

/// What was typed after `accelerate convert`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ConvertArgs {
    /// Weights of any kind: a safetensors file, a file of `torch.save`, an index, or a folder of
    /// these, of `torch.distributed.checkpoint` or of DeepSpeed
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// Folder to write into; or one file, if its name ends in `.safetensors`, `.bin`, `.pt` or `.pth`
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    /// Format to write [default: by the name of a file, else safetensors]
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,

    /// Type for floating-point tensors; others stay as they are
    #[arg(long, value_name = "DTYPE", value_parser = float_type)]
    dtype: Option<FloatType>,

    /// Spread the weights over several files of at most this size, such as `5GB`, with an index
    #[arg(long = "max_shard_size", value_name = "SIZE", value_parser = shard_size)]
    max_shard_size: Option<ShardSize>,

    /// Take only the tensors under this key of a file of `torch.save` (`state.model` for a key within
    /// a key) or of a distributed checkpoint
    #[arg(long, value_name = "KEY")]
    part: Option<String>,

    /// Folder inside a folder of DeepSpeed to read, in place of the one that `latest` names
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

const AFTER_HELP: &str = "\
In a folder, files get their usual names: `model.safetensors`, `pytorch_model.bin`, or numbered shards
and an index. A distributed checkpoint needs a folder that is absent or empty; its tensors lie below
the key `model`, as FSDP writes them.

Tied tensors are stored once. In safetensors files the other names go into the metadata; in the other
formats both names have one place.

--dtype rounds each number once, to the nearest. What is beyond a type becomes infinite and is told.";

/// What can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Safetensors files
    Safetensors,
    /// Files of `torch.save`
    #[value(alias = "bin", alias = "pt")]
    Torch,
    /// A folder of `torch.distributed.checkpoint`
    #[value(alias = "distributed")]
    Dcp,
}

fn float_type(text: &str) -> std::result::Result<FloatType, String> {
    let name = text.to_ascii_lowercase();
    let name = name.strip_prefix("torch.").unwrap_or(&name);
    Ok(match name {
        "float16" | "fp16" | "f16" | "half" => FloatType::F16,
        "bfloat16" | "bf16" => FloatType::Bf16,
        "float32" | "fp32" | "f32" | "float" => FloatType::F32,
        "float64" | "fp64" | "f64" | "double" => FloatType::F64,
        other => {
            let reason = if other.contains('8') && (other.contains('f') || other.contains("int")) {
                "types of 8 bits need scales, which a conversion of the numbers alone cannot choose; "
            } else {
                ""
            };
            return Err(format!(
                "{reason}expected float16, bfloat16, float32 or float64"
            ));
        }
    })
}

/// Converts what `args` name.
///
/// # Errors
/// Those of [`WeightsError`].
pub(crate) fn run(args: &ConvertArgs) -> Result<ExitCode> {
    let place = Place::of(args)?;
    let options = OpenOptions::default()
        .with_part(args.part.clone())
        .with_tag(args.tag.clone());
    let checkpoint = Checkpoint::open(&args.source, &options)?;
    let values = checkpoint.other_values()?;
    if !values.is_empty() {
        return Err(WeightsError::NotOnlyTensors {
            error: Box::new(FormatsError::NotOnlyTensors {
                path: args.source.clone(),
                values,
            }),
            advice: "take the tensors under one key with `--part KEY`; `accelerate merge-weights \
                     --unsafe_serialization` keeps all of it in a file of `torch.save`",
        });
    }
    refuse_source(args, &place, &checkpoint)?;
    let source = checkpoint.source()?;
    let metadata = metadata(&checkpoint, &*source);
    let written = match args.dtype {
        None => write(args, &place, &*source, metadata)?,
        Some(dtype) => {
            let cast = CastSource::new(&*source, dtype)?;
            let written = write(args, &place, &cast, metadata)?;
            tell_overflows(&cast, dtype.dtype());
            written
        }
    };
    print(&format!(
        "converted {} of `{}` into {written}\n",
        amount(&*source),
        args.source.display()
    ))?;
    Ok(DONE)
}

/// What is written, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    File(ShardFormat),
    Folder(ShardFormat),
    Distributed,
}

impl Place {
    fn of(args: &ConvertArgs) -> Result<Self> {
        let refused = |problem| WeightsError::OneFile {
            path: args.output.clone(),
            problem,
        };
        let extension = args.output.extension().and_then(|ending| ending.to_str());
        let named = match extension {
            _ if args.output.is_dir() => None,
            Some("safetensors") => Some(ShardFormat::Safetensors),
            Some("bin" | "pt" | "pth") => Some(ShardFormat::Torch),
            _ => None,
        };
        let Some(named) = named else {
            return Ok(match args.to {
                None | Some(Format::Safetensors) => Self::Folder(ShardFormat::Safetensors),
                Some(Format::Torch) => Self::Folder(ShardFormat::Torch),
                Some(Format::Dcp) => Self::Distributed,
            });
        };
        match (args.to, named) {
            _ if args.max_shard_size.is_some() => {
                Err(refused("`--max_shard_size` asks for several"))
            }
            (Some(Format::Dcp), _) => Err(refused("a distributed checkpoint is a folder")),
            (Some(Format::Torch), ShardFormat::Safetensors)
            | (Some(Format::Safetensors), ShardFormat::Torch) => {
                Err(refused("its ending is that of another format than `--to`"))
            }
            _ => Ok(Self::File(named)),
        }
    }
}

/// Files of the source must not be replaced by what is made of them, nor deleted as stale.
fn refuse_source(args: &ConvertArgs, place: &Place, checkpoint: &Checkpoint) -> Result<()> {
    let is_source = |file: &PathBuf| match place {
        Place::File(_) => same(file, &args.output),
        _ => file
            .parent()
            .is_some_and(|folder| same(folder, &args.output)),
    };
    // Every file in a folder of DeepSpeed is taken for one of its ranks' if its name is like theirs.
    let joins_ranks = match (place, checkpoint.as_zero(), args.output.parent()) {
        (Place::File(_), Some(zero), Some(folder)) => same(folder, zero.folder()),
        _ => false,
    };
    if joins_ranks || checkpoint.files().iter().any(is_source) {
        return Err(WeightsError::OutputIsSource {
            output: args.output.clone(),
        });
    }
    Ok(())
}

fn same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        std::fs::canonicalize(path).ok()
    };
    whole(one)
        .zip(whole(other))
        .is_some_and(|(one, other)| one == other)
}

/// The text in the headers of a safetensors source, but for the names of tied tensors.
fn metadata(checkpoint: &Checkpoint, source: &dyn TensorSource) -> Metadata {
    let files = checkpoint
        .as_weights()
        .into_iter()
        .flat_map(|weights| weights.files());
    let pairs = files
        .filter_map(|file| file.metadata())
        .flat_map(Metadata::iter);
    let aliases = source.aliases();
    pairs
        .filter(|(key, _)| !aliases.iter().any(|(alias, _)| alias == key))
        .collect()
}

fn write(
    args: &ConvertArgs,
    place: &Place,
    source: &dyn TensorSource,
    metadata: Metadata,
) -> Result<String> {
    let limit = args.max_shard_size.unwrap_or(ShardSize::UNLIMITED);
    match *place {
        Place::File(format) => {
            write_weight_file(source, &args.output, format, &metadata)?;
            Ok(format!("`{}`", args.output.display()))
        }
        Place::Distributed => {
            let written = write_distributed(source, &args.output, MODEL_KEY, limit)?;
            let plural = if written.len() == 1 { "file" } else { "files" };
            Ok(format!(
                "`{}` ({} {plural})",
                args.output.display(),
                written.len()
            ))
        }
        Place::Folder(format) => {
            let target = Target::folder(&args.output)?;
            let mut options = ShardedOptions::default()
                .with_max_shard_size(limit)
                .with_format(format)
                .keeping_other_format();
            options.metadata = metadata;
            let written = write_sharded_with(source, target.path(), options)?;
            target.keep();
            warn_of_other(&args.output, &written);
            Ok(files(&written))
        }
    }
}

fn tell_overflows(cast: &CastSource<'_>, to: Dtype) {
    let overflows = cast.overflows();
    if overflows.is_empty() {
        return;
    }
    let details: Vec<String> = overflows
        .iter()
        .map(|(name, count)| format!("{count} in `{name}`"))
        .collect();
    report::note(&format!("numbers beyond `{to}` became infinite"), &details);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_several_names() {
        for (name, expected) in [
            ("bf16", FloatType::Bf16),
            ("torch.bfloat16", FloatType::Bf16),
            ("FP16", FloatType::F16),
            ("float", FloatType::F32),
            ("double", FloatType::F64),
        ] {
            assert_eq!(float_type(name), Ok(expected), "{name}");
        }
        for eight in ["float8_e4m3fn", "f8", "fp8", "int8"] {
            let refused = float_type(eight).unwrap_err();
            assert!(refused.contains("need scales"), "{eight}: {refused}");
        }
        let refused = float_type("decimal").unwrap_err();
        assert_eq!(refused, "expected float16, bfloat16, float32 or float64");
    }
}
