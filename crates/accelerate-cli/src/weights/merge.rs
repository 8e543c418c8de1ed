//! `accelerate merge-weights`: the shards of all ranks become whole weights.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use accelerate_formats::{
    Checkpoint, CheckpointKind, Error as FormatsError, OpenOptions, ShardFormat, ShardSize,
    ShardedOptions, weights::find_in, write_sharded_with,
};
use clap::Args;

use super::{
    DONE, amount,
    error::{Result, WeightsError},
    print, shard_size,
    target::{Target, is_within},
};
use crate::report;

/// What was typed after `accelerate merge-weights`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MergeArgs {
    /// Folder with the shards of all ranks: `.metadata` and `*.distcp` as FSDP writes them, such as
    /// `pytorch_model_fsdp_0`, or a folder of DeepSpeed
    #[arg(value_name = "CHECKPOINT_DIRECTORY")]
    checkpoint_directory: PathBuf,

    /// Folder for the whole weights; the folder above it must be there
    #[arg(value_name = "OUTPUT_PATH")]
    output_path: PathBuf,

    /// Write `pytorch_model.bin` with `torch.save`'s format in place of `model.safetensors`
    #[arg(long = "unsafe_serialization")]
    unsafe_serialization: bool,

    /// Delete the shards when the whole weights are on disk
    #[arg(long = "remove_checkpoint_dir")]
    remove_checkpoint_dir: bool,

    /// Spread the weights over several files of at most this size, such as `5GB`, with an index
    #[arg(long = "max_shard_size", value_name = "SIZE", value_parser = shard_size)]
    max_shard_size: Option<ShardSize>,

    /// Folder inside a folder of DeepSpeed to read, in place of the one that `latest` names
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

const AFTER_HELP: &str = "\
Distributed checkpoints (FSDP with SHARDED_STATE_DICT): where everything lies below one key, such as
`model`, that key is taken away from the names. An optimizer's folder (`optimizer_0`) holds more than
tensors: it becomes a nested dict, with --unsafe_serialization only.

DeepSpeed (ZeRO stages 1 to 3): weights become float32, as its `zero_to_fp32.py` makes them; frozen
parameters keep their type. --remove_checkpoint_dir deletes the folder of the tag.

Memory: files are mapped, and a few rows go through memory at a time, whatever the size of the model.
Files appear when they are whole and flushed; shards are deleted only after that.";

/// Merges what `args` name.
///
/// # Errors
/// Those of [`WeightsError`].
///
/// # Source
/// `accelerate merge-weights`. Differs: the folders of DeepSpeed are read too; nothing is loaded;
/// the parent of the folder with the shards is told which folder to give.
pub(crate) fn run(args: &MergeArgs) -> Result<ExitCode> {
    let input = &args.checkpoint_directory;
    let options = OpenOptions::default().with_tag(args.tag.clone());
    require_sharded(input)?;
    let checkpoint = Checkpoint::open(input, &options)?;
    let removed = to_remove(args, &checkpoint)?;
    let target = Target::folder(&args.output_path)?;
    let (written, merged) = write(args, &checkpoint, target.path())?;
    target.keep();
    print(&format!(
        "merged {merged} of `{}` into {}\n",
        input.display(),
        files(&written)
    ))?;
    if let Some(folder) = removed {
        drop(checkpoint);
        fs::remove_dir_all(&folder).map_err(|source| WeightsError::Remove {
            output: args.output_path.clone(),
            input: folder.clone(),
            source,
        })?;
        print(&format!("removed `{}`\n", folder.display()))?;
    }
    Ok(DONE)
}

/// `` `out/model.safetensors` `` or `` `out/model.safetensors.index.json` and 3 files ``.
pub(super) fn files(written: &[PathBuf]) -> String {
    match written {
        [only] => format!("`{}`", only.display()),
        [shards @ .., index] => format!("`{}` and {} files", index.display(), shards.len()),
        [] => "nothing".to_owned(),
    }
}

/// Says what to give where there are no shards.
fn require_sharded(input: &Path) -> Result<()> {
    let kind = CheckpointKind::of(input)?;
    if matches!(
        kind,
        Some(CheckpointKind::Distributed | CheckpointKind::Zero)
    ) {
        return Ok(());
    }
    let entries = fs::read_dir(input).into_iter().flatten().flatten();
    let mut inner: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let kind = path
                .is_dir()
                .then(|| CheckpointKind::of(path).ok().flatten());
            matches!(
                kind.flatten(),
                Some(CheckpointKind::Distributed | CheckpointKind::Zero)
            )
        })
        .collect();
    inner.sort_unstable();
    Err(WeightsError::NotSharded {
        path: input.to_owned(),
        inner,
        is_whole: kind.is_some(),
    })
}

/// The folder to delete in the end, if that is asked for and can be done.
fn to_remove(args: &MergeArgs, checkpoint: &Checkpoint) -> Result<Option<PathBuf>> {
    if !args.remove_checkpoint_dir {
        return Ok(None);
    }
    // Of a folder of DeepSpeed, other tags and files stay.
    let folder = match checkpoint.as_zero() {
        Some(zero) => zero.folder().to_owned(),
        None => args.checkpoint_directory.clone(),
    };
    // With a slash behind its name, a link would be looked through.
    let folder: PathBuf = folder.components().collect();
    if folder.is_symlink() {
        return Err(WeightsError::InputIsLink { path: folder });
    }
    if is_within(&args.output_path, &folder) {
        return Err(WeightsError::OutputInsideInput {
            output: args.output_path.clone(),
            input: folder,
        });
    }
    Ok(Some(folder))
}

/// Writes everything, and names the files and what is in them.
fn write(
    args: &MergeArgs,
    checkpoint: &Checkpoint,
    folder: &Path,
) -> Result<(Vec<PathBuf>, String)> {
    let source = checkpoint.source()?;
    let values = checkpoint.other_values()?;
    if let (Some(distributed), true, None) = (
        checkpoint.as_distributed(),
        args.unsafe_serialization,
        args.max_shard_size,
    ) {
        let path = folder.join(ShardFormat::Torch.single());
        distributed.write_torch_file(&path)?;
        let mut merged = amount(&*source);
        if !values.is_empty() {
            merged += &format!(" and {} other values", values.len());
        }
        let written = vec![path];
        warn_of_other(folder, &written);
        return Ok((written, merged));
    }
    if !values.is_empty() {
        return Err(WeightsError::NotOnlyTensors {
            error: Box::new(FormatsError::NotOnlyTensors {
                path: args.checkpoint_directory.clone(),
                values,
            }),
            advice: if args.unsafe_serialization {
                "shards hold tensors only: leave out `--max_shard_size` for one file of \
                 `torch.save` that keeps all of it"
            } else {
                "safetensors files hold tensors only: add `--unsafe_serialization` for a file of \
                 `torch.save` that keeps all of it"
            },
        });
    }
    if let Some(zero) = checkpoint.as_zero() {
        let ranks = count_of_ranks(zero.world_size());
        let details = [format!("in `{}`", zero.folder().display())];
        report::note(
            &format!("ZeRO stage {}, written by {ranks}", zero.stage()),
            &details,
        );
    }
    let format = if args.unsafe_serialization {
        ShardFormat::Torch
    } else {
        ShardFormat::Safetensors
    };
    let options = ShardedOptions::default()
        .with_max_shard_size(args.max_shard_size.unwrap_or(ShardSize::UNLIMITED))
        .with_format(format)
        .keeping_other_format();
    let written = write_sharded_with(&*source, folder, options)?;
    warn_of_other(folder, &written);
    Ok((written, amount(&*source)))
}

fn count_of_ranks(ranks: usize) -> String {
    match ranks {
        1 => "1 rank".to_owned(),
        ranks => format!("{ranks} ranks"),
    }
}

/// Tells of an earlier file that readers would take in place of the new ones.
pub(super) fn warn_of_other(folder: &Path, written: &[PathBuf]) {
    let (title, detail) = match find_in(folder) {
        Ok(first)
            if written
                .iter()
                .any(|new| new.file_name() == first.file_name()) =>
        {
            return;
        }
        Ok(first) => (
            format!("`{}` is there from before", first.display()),
            "whoever loads weights from this folder takes it first",
        ),
        Err(FormatsError::ManyIndexes { .. }) => (
            format!("`{}` holds other indexes from before", folder.display()),
            "whoever loads weights has to name the file and not the folder",
        ),
        Err(_) => return,
    };
    report::note(&title, &[detail.to_owned()]);
}
