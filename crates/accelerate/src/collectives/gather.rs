use accelerate_torch::ProcessGroup;
use tch::Tensor;

use super::watch::{Operation, Watch};
use super::wire;
use crate::Result;
use crate::state::PartialState;
use crate::tree::Tree;

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
/// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch) in debug mode;
/// [`Error::CollectiveIncomplete`](crate::Error::CollectiveIncomplete) if a rank is missing.
///
/// # Source
/// `accelerate.utils.gather`. Differs: every kind of tensor can be gathered; values that
/// are no tensors are left alone, where the original refuses them.
#[track_caller]
pub fn gather<T: Tree>(state: &PartialState, mut tree: T) -> Result<T> {
    let operation = Operation::new("gather").with_tensors(&tree);
    let Some(watch) = Watch::begin(state, &operation)? else {
        return Ok(tree);
    };
    watch.run(|group| {
        tree.visit_mut(&mut |leaf| {
            *leaf = tch::no_grad(|| gather_one(group, leaf))?;
            Ok(())
        })
    })?;
    Ok(tree)
}

fn gather_one(group: &ProcessGroup, tensor: &Tensor) -> Result<Tensor> {
    let tensor = tensor.f_resolve_conj()?.f_resolve_neg()?;
    let tensor = match tensor.dim() {
        0 => tensor.f_reshape([1])?,
        _ => tensor.f_contiguous()?,
    };
    let mut shape = tensor.size();
    shape[0] *= wire::count(group.size());
    let output = Tensor::f_empty(&shape, (tensor.f_kind()?, tensor.device()))?;
    if output.numel() > 0 {
        group.all_gather_into_tensor(&wire::carried(&output)?, &wire::carried(&tensor)?)?;
    }
    Ok(output)
}
