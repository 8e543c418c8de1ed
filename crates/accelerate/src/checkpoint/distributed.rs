//! Checkpoints in which each rank writes what it keeps: distributed checkpoints of PyTorch.
//!
//! Nothing is gathered: the part of a parameter that a rank keeps is a few boxes of it, and any
//! number of ranks reads any boxes back.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use accelerate_formats::distributed::{
    ChunkToWrite, DistributedCheckpoint, DistributedWriter, PathPart, WrittenPart,
    write_description,
};
use accelerate_formats::{Dtype, Value};
use accelerate_torch::storage;
use tch::{Kind, Tensor};

use super::agreement::together;
use super::dtype::{dtype_of, kind_of};
use super::folder::io;
use super::weight_set::with_plain_bytes;
use crate::collectives::gather_object;
use crate::nn::{Module, all_state};
use crate::parallel::{Kept, Piece, ShardedModel, pieces};
use crate::state::PartialState;
use crate::{Error, Result};

/// A tensor under its keys, or the part of one that this rank has.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: Vec<String>,
    /// The shape of the whole.
    pub(super) shape: Vec<usize>,
    /// Which elements, counted in row-major order.
    pub(super) range: Range<usize>,
    pub(super) values: Tensor,
}

impl Part {
    /// A whole tensor.
    pub(super) fn whole(path: Vec<String>, tensor: &Tensor) -> Self {
        let shape = tensor.size().into_iter();
        Self {
            path,
            shape: shape
                .map(|size| usize::try_from(size).unwrap_or(0))
                .collect(),
            range: 0..tensor.numel(),
            values: tensor.shallow_clone(),
        }
    }

    fn of(path: Vec<String>, kept: &Kept, values: &Tensor) -> Self {
        Self {
            path,
            shape: kept.shape.clone(),
            range: kept.range.clone(),
            values: values.shallow_clone(),
        }
    }

    fn name(&self) -> String {
        self.path.join(".")
    }

    /// Each box of the part, with the elements in it.
    fn boxes(&self) -> Result<Vec<(Piece, Tensor)>> {
        let flat = self.values.f_detach()?.f_reshape([-1])?;
        let mut boxes = Vec::new();
        for piece in pieces(&self.shape, &self.range) {
            let (start, count) = (piece.start as i64, piece.len() as i64);
            let values = flat.f_narrow(0, start, count)?;
            boxes.push((piece, values));
        }
        Ok(boxes)
    }
}

/// What the tensors of a sharded model are, by the identity of each.
pub(super) type Shards = HashMap<usize, Kept>;

/// The part of `tensor` that this rank writes or reads: its own one where it is in shards, else all
/// of it, which only a `main` rank writes.
pub(super) fn part_of(
    path: Vec<String>,
    parameter: &Tensor,
    values: &Tensor,
    shards: &Shards,
) -> Part {
    match shards.get(&storage::identity(parameter)) {
        Some(kept) => Part::of(path, kept, values),
        None => Part::whole(path, values),
    }
}

/// The weights of a model as checkpoints of FSDP name them.
fn weights(module: &dyn Module, shards: &Shards) -> Vec<(bool, Part)> {
    let all = all_state(module).into_iter();
    let parts = all.map(|(name, tensor)| {
        let path = vec!["model".to_owned(), name];
        let is_shard = shards.contains_key(&storage::identity(tensor));
        (is_shard, part_of(path, tensor, tensor, shards))
    });
    parts.collect()
}

/// Writes the weights of a model into a folder, each rank what it keeps.
///
/// # Collective
/// Every rank calls this.
pub(super) fn save_model(
    folder: &Path,
    module: &dyn Module,
    sharded: &ShardedModel,
    state: &PartialState,
) -> Result<()> {
    let shards = sharded.kept();
    let writes = |is_shard: bool| match is_shard {
        true => sharded.has_first_copy(),
        false => state.is_main_process(),
    };
    let parts = weights(module, &shards).into_iter();
    let own: Vec<Part> = parts
        .filter(|(is_shard, _)| writes(*is_shard))
        .map(|(_, part)| part)
        .collect();
    save(folder, &own, &[], state)
}

/// A value that is no tensor, under its keys.
pub(super) type Plain = (Vec<PathPart>, Value);

/// Writes parts and values into a folder that is one checkpoint then.
///
/// # Collective
/// Every rank calls this; each value is written by one of them.
pub(super) fn save(
    folder: &Path,
    parts: &[Part],
    values: &[Plain],
    state: &PartialState,
) -> Result<()> {
    let written = write(folder, parts, values, state.process_index());
    let written = together(state, written)?;
    let all = gather_object(state, vec![written])?;
    let described = match state.is_main_process() {
        true => write_description(folder, &all).map_err(Error::from),
        false => Ok(()),
    };
    together(state, described)
}

fn write(folder: &Path, parts: &[Part], values: &[Plain], rank: usize) -> Result<WrittenPart> {
    std::fs::create_dir_all(folder).map_err(|source| io("make the folder", folder, source))?;
    let mut writer = DistributedWriter::create(folder, rank)?;
    for (path, value) in values {
        writer.write_value(&joined(path), path, value)?;
    }
    for part in parts {
        let (name, dtype) = (part.name(), dtype(&part.values)?);
        let path: Vec<PathPart> = part.path.iter().cloned().map(PathPart::Key).collect();
        for (piece, values) in part.boxes()? {
            let chunk = ChunkToWrite {
                name: &name,
                path: &path,
                dtype,
                shape: &part.shape,
                offsets: &piece.offsets,
                sizes: &piece.sizes,
            };
            with_plain_bytes(&values, |bytes| writer.write_chunk(chunk, bytes))??;
        }
    }
    Ok(writer.finish()?)
}

fn joined(path: &[PathPart]) -> String {
    let parts: Vec<String> = path
        .iter()
        .map(|part| match part {
            PathPart::Key(key) => key.clone(),
            PathPart::Index(index) => index.to_string(),
        })
        .collect();
    parts.join(".")
}

fn dtype(tensor: &Tensor) -> Result<Dtype> {
    let kind = tensor.f_kind()?;
    dtype_of(kind).ok_or_else(|| Error::Argument {
        operation: "save_state",
        expected: "a data type that checkpoints can hold".to_owned(),
        found: format!("`{kind:?}`"),
    })
}

/// Reads the weights of a model, of which each rank may keep a part.
///
/// # Errors
/// [`Error::StateMismatch`] naming everything that does not fit, before anything is read.
pub(super) fn load_model(
    folder: &Path,
    module: &dyn Module,
    sharded: Option<&ShardedModel>,
) -> Result<()> {
    let checkpoint = DistributedCheckpoint::open(folder)?;
    let shards = sharded.map(ShardedModel::kept).unwrap_or_default();
    let parts: Vec<Part> = weights(module, &shards)
        .into_iter()
        .map(|(_, part)| part)
        .collect();
    let mut problems = problems(&checkpoint, &parts);
    let wanted: Vec<String> = parts.iter().map(Part::name).collect();
    for tensor in checkpoint.tensors() {
        if !wanted.iter().any(|name| name == tensor.name()) {
            problems.push(format!("`{}` is unknown", tensor.name()));
        }
    }
    refuse("model", problems)?;
    parts.iter().try_for_each(|part| read(&checkpoint, part))?;
    if let Some(sharded) = sharded {
        sharded.note_values()?;
    }
    Ok(())
}

/// What of the parts a checkpoint does not have, or has in another shape.
fn problems(checkpoint: &DistributedCheckpoint, parts: &[Part]) -> Vec<String> {
    let problem = |part: &Part| {
        let name = part.name();
        match checkpoint.tensor(&name) {
            Err(_) => Some(format!("`{name}` is missing")),
            Ok(found) if found.shape() != part.shape => Some(format!(
                "`{name}`: expected {:?}, found {:?}",
                part.shape,
                found.shape()
            )),
            Ok(_) => None,
        }
    };
    parts.iter().filter_map(problem).collect()
}

/// # Errors
/// [`Error::StateMismatch`] if there are problems.
pub(super) fn refuse(target: &'static str, problems: Vec<String>) -> Result<()> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::StateMismatch { target, problems }),
    }
}

/// Reads a part into its values.
pub(super) fn read(checkpoint: &DistributedCheckpoint, part: &Part) -> Result<()> {
    let name = part.name();
    let kind = kind(checkpoint, &name)?;
    let mut bytes = Vec::new();
    let is_in_rows = part.values.is_contiguous();
    let target = match is_in_rows {
        true => part.values.f_detach()?.f_view([-1])?,
        // A tensor in another order is put together beside it.
        false => part.values.f_detach()?.f_contiguous()?.f_view([-1])?,
    };
    for piece in pieces(&part.shape, &part.range) {
        checkpoint.read_box(&name, &piece.offsets, &piece.sizes, &mut bytes)?;
        let count = piece.len() as i64;
        let read = Tensor::f_from_data_size(&bytes, &[count], kind)?;
        let mut place = target.f_narrow(0, piece.start as i64, count)?;
        tch::no_grad(|| place.f_copy_(&read))?;
    }
    if !is_in_rows {
        let shape = part.values.size();
        let mut values = part.values.f_detach()?;
        tch::no_grad(|| values.f_copy_(&target.f_view(&shape[..])?))?;
    }
    Ok(())
}

fn kind(checkpoint: &DistributedCheckpoint, name: &str) -> Result<Kind> {
    let dtype = checkpoint.tensor(name)?.dtype();
    kind_of(dtype).ok_or_else(|| Error::Argument {
        operation: "load_state",
        expected: "data types that libtorch has".to_owned(),
        found: format!("`{dtype}`"),
    })
}

/// A tensor of a checkpoint that this rank has not: all of it, or its part of a parameter in shards.
pub(super) fn read_new(
    checkpoint: &DistributedCheckpoint,
    path: Vec<String>,
    kept: Option<&Kept>,
) -> Result<Tensor> {
    let name = path.join(".");
    let found = checkpoint.tensor(&name)?;
    let shape: Vec<i64> = match kept {
        Some(kept) => vec![kept.range.len() as i64],
        None => found.shape().iter().map(|&size| size as i64).collect(),
    };
    let options = (kind(checkpoint, &name)?, tch::Device::Cpu);
    let values = Tensor::f_zeros(&shape[..], options)?;
    let part = match kept {
        Some(kept) => Part::of(path, kept, &values),
        None => Part::whole(path, &values),
    };
    refuse(
        "optimizer",
        problems(checkpoint, std::slice::from_ref(&part)),
    )?;
    read(checkpoint, &part)?;
    Ok(values)
}

/// Where the weights of a model are in a checkpoint in shards. Older documentation has it without
/// `fsdp`.
pub(super) fn model_folder(folder: &Path, index: usize) -> Option<PathBuf> {
    let names = [model_name(index), format!("pytorch_model_{index}")];
    let folders = names.map(|name| folder.join(name));
    folders.into_iter().find(|folder| is_checkpoint(folder))
}

/// Where the state of an optimizer is in a checkpoint in shards.
pub(super) fn optimizer_folder(folder: &Path, index: usize) -> Option<PathBuf> {
    Some(folder.join(optimizer_name(index))).filter(|folder| is_checkpoint(folder))
}

fn is_checkpoint(folder: &Path) -> bool {
    folder
        .join(accelerate_formats::distributed::DESCRIPTION_FILE)
        .exists()
}

pub(super) fn model_name(index: usize) -> String {
    format!("pytorch_model_fsdp_{index}")
}

pub(super) fn optimizer_name(index: usize) -> String {
    format!("optimizer_{index}")
}
