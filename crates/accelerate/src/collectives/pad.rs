use accelerate_torch::{ProcessGroup, ReduceOp};
use tch::{Device, Kind, Tensor};

use super::watch::{Operation, Watch};
use super::{codec, wire};
use crate::state::PartialState;
use crate::tree::{Tree, data_structure, leaves};
use crate::{Error, Result};

/// Makes tensors as long in one dimension as the longest of any rank, so that they can be gathered.
///
/// A dimension that the tensors do not have changes nothing; one below zero counts from
/// the last.
///
/// # Shapes
/// - input: `[..., n, ...]`, where `n` may differ over ranks
/// - output: `[..., longest, ...]`
///
/// # Collective
/// Every rank calls this with the same tree.
///
/// # Errors
/// [`Error::DimensionsDiffer`] on every rank if a tensor has more dimensions on one;
/// [`Error::Argument`] for a fraction to fill up integers with;
/// [`Error::CollectiveMismatch`] in debug mode; [`Error::CollectiveIncomplete`] if a rank
/// is missing.
///
/// # Source
/// `accelerate.utils.pad_across_processes`. Differs: the kind of the tensor stays; numbers
/// of dimensions are compared without debug mode too.
#[track_caller]
pub fn pad_across_processes<T: Tree>(
    state: &PartialState,
    mut tree: T,
    dim: i64,
    pad_index: f64,
    pad_first: bool,
) -> Result<T> {
    tree.visit(&mut |leaf| check_filling(leaf.f_kind()?, pad_index))?;
    let operation = Operation::new(NAME)
        .with_arguments(format!("dim {dim}, pad_first {pad_first}"))
        .with_sizes_of_any(&tree);
    let Some(watch) = Watch::begin(state, &operation)? else {
        return Ok(tree);
    };
    watch.run(|group| {
        let longest = longest(group, watch.device(), &tree, dim)?;
        let mut longest = longest.into_iter();
        tree.visit_mut(&mut |leaf| {
            if let Some(longest) = longest.next().flatten() {
                *leaf = tch::no_grad(|| pad_one(leaf, dim, longest, pad_index, pad_first))?;
            }
            Ok(())
        })
    })?;
    Ok(tree)
}

const NAME: &str = "pad_across_processes";

fn check_filling(kind: Kind, pad_index: f64) -> Result<()> {
    let whole = matches!(
        kind,
        Kind::Bool | Kind::Uint8 | Kind::Int8 | Kind::Int16 | Kind::Int | Kind::Int64
    );
    if !whole || pad_index.fract() == 0.0 {
        return Ok(());
    }
    Err(Error::Argument {
        operation: NAME,
        expected: format!("a whole `pad_index` for {kind:?}"),
        found: pad_index.to_string(),
    })
}

/// The place of `dim` in a shape that has it.
fn place(dim: i64, shape: &[i64]) -> Option<usize> {
    let dim = if dim < 0 {
        dim + wire::count(shape.len())
    } else {
        dim
    };
    usize::try_from(dim).ok().filter(|&dim| dim < shape.len())
}

/// For each tensor the longest of any rank, or none where it has no such dimension.
///
/// One exchange for all of them: lengths and numbers of dimensions, up and down.
fn longest(
    group: &ProcessGroup,
    device: Device,
    tree: &dyn Tree,
    dim: i64,
) -> Result<Vec<Option<i64>>> {
    let shapes: Vec<_> = leaves(tree)?.iter().map(Tensor::size).collect();
    if shapes.is_empty() {
        return Ok(Vec::new());
    }
    let own: Vec<i64> = shapes
        .iter()
        .flat_map(|shape| {
            let length = place(dim, shape).map_or(-1, |dim| shape[dim]);
            let dims = wire::count(shape.len());
            [length, dims, -dims]
        })
        .collect();
    let all = Tensor::f_from_slice(&own)?.f_to_device(device)?;
    group.all_reduce(&all, ReduceOp::Max)?;
    let all: Vec<i64> = Vec::try_from(&all.f_to_device(Device::Cpu)?)?;
    if all.chunks(3).any(|most| most[1] != -most[2]) {
        return Err(dimensions_differ(group, device, tree)?);
    }
    let lengths = all.chunks(3).map(|most| most[0]);
    Ok(lengths.map(|most| (most >= 0).then_some(most)).collect())
}

fn dimensions_differ(group: &ProcessGroup, device: Device, tree: &dyn Tree) -> Result<Error> {
    let own: Vec<String> = data_structure(tree)?
        .tensors
        .iter()
        .map(ToString::to_string)
        .collect();
    let own = codec::encode(NAME, &own.join(", "))?;
    let shapes = wire::gather_messages(group, device, &own)?
        .iter()
        .map(|message| codec::decode(NAME, message))
        .collect::<Result<_>>()?;
    Ok(Error::DimensionsDiffer {
        operation: NAME,
        shapes,
    })
}

fn pad_one(
    tensor: &Tensor,
    dim: i64,
    longest: i64,
    pad_index: f64,
    pad_first: bool,
) -> Result<Tensor> {
    let mut shape = tensor.size();
    let Some(place) = place(dim, &shape) else {
        return Ok(tensor.shallow_clone());
    };
    let length = shape[place];
    if length == longest {
        return Ok(tensor.shallow_clone());
    }
    shape[place] = longest;
    let start = if pad_first { longest - length } else { 0 };
    let padded = Tensor::f_full(&shape, pad_index, (tensor.f_kind()?, tensor.device()))?;
    padded
        .f_narrow(wire::count(place), start, length)?
        .f_copy_(tensor)?;
    Ok(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_is_found_from_both_ends() {
        assert_eq!(place(1, &[2, 3]), Some(1));
        assert_eq!(place(-2, &[2, 3]), Some(0));
        assert_eq!(
            (place(2, &[2, 3]), place(-3, &[2, 3]), place(0, &[])),
            (None, None, None)
        );
    }

    #[test]
    fn integers_are_filled_up_with_integers() {
        assert!(check_filling(Kind::Int64, -100.0).is_ok());
        assert!(check_filling(Kind::Float, 0.5).is_ok());
        let error = check_filling(Kind::Int64, 0.5).unwrap_err().to_string();
        assert!(error.contains("whole `pad_index` for Int64"), "{error}");
    }
}
