//! Operations between ranks over nested values of tensors.
//!
//! All take trees, leave values that are no tensors alone, and give the same tree back.
//! On a process by itself they change nothing.

use accelerate_torch::{ProcessGroup, ReduceOp};
use tch::Tensor;

use crate::state::PartialState;
use crate::tree::Tree;
use crate::{Error, Result};

/// How [`reduce`] makes one value of those of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum over ranks.
    Sum,
    /// The sum divided by the number of ranks; floating point only.
    Mean,
    /// The largest over ranks.
    Max,
}

/// Joins the tensors of all ranks along dimension 0, in the order of ranks.
///
/// # Shapes
/// - input: `[n, ...]`, the same on every rank; a scalar counts as `[1]`
/// - output: `[world * n, ...]`
///
/// # Collective
/// Every rank calls this with the same tree.
///
/// # Errors
/// [`Error::ShapeMismatch`] in debug mode; what the backend reports.
///
/// # Source
/// `accelerate.utils.gather`.
pub fn gather<T: Tree>(state: &PartialState, mut tree: T) -> Result<T> {
    if let Some(group) = state.process_group() {
        verify_shapes(state, group, "gather", &tree)?;
        tree.visit_mut(&mut |leaf| {
            *leaf = gather_one(group, leaf)?;
            Ok(())
        })?;
    }
    Ok(tree)
}

fn gather_one(group: &ProcessGroup, tensor: &Tensor) -> Result<Tensor> {
    tch::no_grad(|| {
        let tensor = match tensor.dim() {
            0 => tensor.f_reshape([1])?,
            _ => tensor.f_contiguous()?,
        };
        let mut shape = tensor.size();
        shape[0] *= ranks(group);
        let output = Tensor::f_empty(&shape, (tensor.f_kind()?, tensor.device()))?;
        if output.numel() > 0 {
            group.all_gather_into_tensor(&output, &tensor)?;
        }
        Ok(output)
    })
}

/// Reduces the tensors of all ranks to one value that every rank gets.
///
/// # Shapes
/// - input and output: `[...]`, the same on every rank
///
/// # Collective
/// Every rank calls this with the same tree.
///
/// # Errors
/// [`Error::ShapeMismatch`] in debug mode; the mean of integers; what the backend reports.
///
/// # Source
/// `accelerate.utils.reduce`. Differs: the input is not changed where others hold it.
pub fn reduce<T: Tree>(state: &PartialState, mut tree: T, reduction: Reduction) -> Result<T> {
    let op = match reduction {
        Reduction::Sum => ReduceOp::Sum,
        Reduction::Mean => ReduceOp::Avg,
        Reduction::Max => ReduceOp::Max,
    };
    let Some(group) = state.process_group() else {
        return Ok(tree);
    };
    verify_shapes(state, group, "reduce", &tree)?;
    tree.visit_mut(&mut |leaf| {
        let copy = tch::no_grad(|| leaf.f_contiguous()?.f_detach_copy())?;
        group.all_reduce(&copy, op)?;
        *leaf = copy;
        Ok(())
    })?;
    Ok(tree)
}

/// Copies the tensors of one rank to all, in place.
///
/// # Collective
/// Every rank calls this with the same tree.
///
/// # Errors
/// [`Error::ShapeMismatch`] in debug mode; what the backend reports.
///
/// # Source
/// `accelerate.utils.broadcast`.
pub fn broadcast<T: Tree>(state: &PartialState, tree: T, from_process: usize) -> Result<T> {
    if let Some(group) = state.process_group() {
        verify_shapes(state, group, "broadcast", &tree)?;
        tree.visit(&mut |leaf| {
            if leaf.is_contiguous() {
                return Ok(group.broadcast(leaf, from_process)?);
            }
            let packed = tch::no_grad(|| leaf.f_contiguous())?;
            group.broadcast(&packed, from_process)?;
            tch::no_grad(|| leaf.shallow_clone().f_copy_(&packed))?;
            Ok(())
        })?;
    }
    Ok(tree)
}

/// Makes tensors as long in one dimension as the longest of any rank, so that they can be gathered.
///
/// # Shapes
/// - input: `[..., n, ...]`, where `n` may differ over ranks
/// - output: `[..., longest, ...]`
///
/// # Collective
/// Every rank calls this with the same tree.
///
/// # Errors
/// What the backend reports.
///
/// # Source
/// `accelerate.utils.pad_across_processes`.
pub fn pad_across_processes<T: Tree>(
    state: &PartialState,
    mut tree: T,
    dim: i64,
    pad_index: f64,
    pad_first: bool,
) -> Result<T> {
    if let Some(group) = state.process_group() {
        tree.visit_mut(&mut |leaf| {
            *leaf = pad_one(group, leaf, dim, pad_index, pad_first)?;
            Ok(())
        })?;
    }
    Ok(tree)
}

fn pad_one(
    group: &ProcessGroup,
    tensor: &Tensor,
    dim: i64,
    pad_index: f64,
    pad_first: bool,
) -> Result<Tensor> {
    let mut shape = tensor.size();
    let dims = i64::try_from(shape.len()).unwrap_or(i64::MAX);
    let dim = if dim < 0 { dim + dims } else { dim };
    let Some(length) = usize::try_from(dim)
        .ok()
        .and_then(|dim| shape.get(dim).copied())
    else {
        return Ok(tensor.shallow_clone());
    };
    let longest = Tensor::from_slice(&[length]).f_to_device(group_device(group, tensor))?;
    group.all_reduce(&longest, ReduceOp::Max)?;
    let longest = longest.f_int64_value(&[0])?;
    if longest == length {
        return Ok(tensor.shallow_clone());
    }
    if let Some(size) = usize::try_from(dim).ok().and_then(|dim| shape.get_mut(dim)) {
        *size = longest;
    }
    let start = if pad_first { longest - length } else { 0 };
    tch::no_grad(|| {
        let padded = Tensor::f_full(&shape, pad_index, (tensor.f_kind()?, tensor.device()))?;
        padded.f_narrow(dim, start, length)?.f_copy_(tensor)?;
        Ok(padded)
    })
}

/// Small values travel where the backend can reduce them.
fn group_device(group: &ProcessGroup, like: &Tensor) -> tch::Device {
    match group.backend() {
        accelerate_torch::Backend::Nccl => like.device(),
        _ => tch::Device::Cpu,
    }
}

/// In debug mode, compares the shapes of all ranks before they would hang or mix bytes.
fn verify_shapes(
    state: &PartialState,
    group: &ProcessGroup,
    operation: &'static str,
    tree: &dyn Tree,
) -> Result<()> {
    if !state.debug() {
        return Ok(());
    }
    let mut own = Vec::new();
    tree.visit(&mut |leaf| {
        own.push(format!("{:?} {:?}", leaf.f_kind()?, leaf.size()));
        Ok(())
    })?;
    let all = group.all_gather_bytes(own.join(", ").as_bytes())?;
    if all.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(());
    }
    let shapes = all
        .iter()
        .map(|one| String::from_utf8_lossy(one).into_owned())
        .collect();
    Err(Error::ShapeMismatch { operation, shapes })
}

fn ranks(group: &ProcessGroup) -> i64 {
    i64::try_from(group.size()).unwrap_or(i64::MAX)
}
