use accelerate_torch::ProcessGroup;
use tch::Tensor;

use super::watch::{Operation, Watch};
use super::{codec, wire};
use crate::state::PartialState;
use crate::tree::{TensorSpec, Tree, data_structure};
use crate::{Error, Result};

/// Copies the tensors of one rank to all, in place, and gives the tree back.
///
/// # Shapes
/// - input and output: `[...]`, the same on every rank
///
/// # Collective
/// Every rank calls this with a tree of the same shapes and the same `from_process`.
///
/// # Errors
/// [`Error::Argument`] for a rank that is not there; [`Error::CollectiveMismatch`] in debug
/// mode; [`Error::CollectiveIncomplete`] if a rank is missing.
///
/// # Source
/// `accelerate.utils.broadcast`.
#[track_caller]
pub fn broadcast<T: Tree>(state: &PartialState, tree: T, from_process: usize) -> Result<T> {
    check_rank(state, "broadcast", from_process)?;
    let operation = Operation::new("broadcast")
        .with_arguments(format!("from_process {from_process}"))
        .with_tensors(&tree);
    let Some(watch) = Watch::begin(state, &operation)? else {
        return Ok(tree);
    };
    watch.run(|group| {
        tree.visit(&mut |leaf| tch::no_grad(|| broadcast_one(group, leaf, from_process)))
    })?;
    Ok(tree)
}

pub(super) fn check_rank(state: &PartialState, operation: &'static str, rank: usize) -> Result<()> {
    let world = state.num_processes();
    if rank < world {
        return Ok(());
    }
    Err(Error::Argument {
        operation,
        expected: format!("a `from_process` below the number of processes, {world}"),
        found: rank.to_string(),
    })
}

fn broadcast_one(group: &ProcessGroup, tensor: &Tensor, from: usize) -> Result<()> {
    if tensor.numel() == 0 {
        return Ok(());
    }
    if tensor.is_contiguous() {
        return Ok(group.broadcast(&wire::carried(tensor)?, from)?);
    }
    let packed = tensor.f_contiguous()?;
    group.broadcast(&wire::carried(&packed)?, from)?;
    tensor.shallow_clone().f_copy_(&packed)?;
    Ok(())
}

/// Gives every rank the tensor that exactly one of them has.
///
/// # Shapes
/// - output: the shape of that tensor, which the others need not know
///
/// # Collective
/// Every rank calls this, all but one with `None`.
///
/// # Errors
/// [`Error::Argument`] on every rank if none or several have a tensor; a process by itself
/// has to have one.
///
/// # Source
/// `accelerate.utils.copy_tensor_to_devices`. Differs: shapes travel as an object and
/// numbers by a broadcast, where the original sums buffers of 8 MiB.
#[track_caller]
pub fn copy_tensor_to_devices(state: &PartialState, tensor: Option<&Tensor>) -> Result<Tensor> {
    const OPERATION: &str = "copy_tensor_to_devices";
    let Some(watch) = Watch::begin(state, &Operation::new(OPERATION))? else {
        let own = tensor.map(Tensor::shallow_clone);
        return own.ok_or_else(|| owners(OPERATION, &[]));
    };
    let own: Option<TensorSpec> = match tensor {
        Some(tensor) => data_structure(tensor)?.tensors.pop(),
        None => None,
    };
    let own = codec::encode(OPERATION, &own)?;
    watch.run(|group| {
        let specs = wire::gather_messages(group, watch.device(), &own)?
            .iter()
            .map(|message| codec::decode::<Option<TensorSpec>>(OPERATION, message))
            .collect::<Result<Vec<_>>>()?;
        let mut found = specs.iter().enumerate().filter_map(|(rank, spec)| {
            let spec = spec.as_ref()?;
            Some((rank, spec))
        });
        let (Some((from, spec)), None) = (found.next(), found.next()) else {
            let all = (0..specs.len()).filter(|&rank| specs[rank].is_some());
            return Err(owners(OPERATION, &all.collect::<Vec<_>>()));
        };
        let copy = match tensor {
            Some(tensor) => tensor.f_detach()?.f_to_device(state.device())?,
            None => Tensor::f_empty(&spec.shape, (spec.kind, state.device()))?,
        };
        let copy = copy.f_contiguous()?;
        broadcast_one(group, &copy, from)?;
        Ok(copy)
    })
}

fn owners(operation: &'static str, found: &[usize]) -> Error {
    Error::Argument {
        operation,
        expected: "a tensor on exactly one rank".to_owned(),
        found: format!("tensors on ranks {found:?}"),
    }
}
