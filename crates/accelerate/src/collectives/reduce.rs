use accelerate_torch::{ProcessGroup, ReduceOp};
use tch::{Kind, Tensor};

use super::watch::{Operation, Watch};
use super::wire;
use crate::state::PartialState;
use crate::tree::Tree;
use crate::{Error, Result};

/// How [`reduce`] makes one value of those of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum over ranks. The original's `"none"` is this too.
    Sum,
    /// The sum divided by the number of ranks; floating point and complex only.
    Mean,
    /// The largest over ranks; for flags, whether any is set.
    Max,
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
/// [`Error::Argument`] for the mean of integers, the sum of flags or the largest of complex
/// numbers, on a process by itself too;
/// [`Error::CollectiveMismatch`] in debug mode; [`Error::CollectiveIncomplete`] if a rank
/// is missing.
///
/// # Source
/// `accelerate.utils.reduce`, which for several processes fails on the mean of integers
/// and for one does not. Differs: short integers and complex numbers are reduced too;
/// `scale`, which counts on TPUs only, is not there.
#[track_caller]
pub fn reduce<T: Tree>(state: &PartialState, mut tree: T, reduction: Reduction) -> Result<T> {
    tree.visit(&mut |leaf| check(leaf.f_kind()?, reduction))?;
    let operation = Operation::new("reduce")
        .with_arguments(format!("{reduction:?}"))
        .with_tensors(&tree);
    let Some(watch) = Watch::begin(state, &operation)? else {
        return Ok(tree);
    };
    watch.run(|group| {
        tree.visit_mut(&mut |leaf| {
            *leaf = tch::no_grad(|| reduce_one(group, leaf, reduction))?;
            Ok(())
        })
    })?;
    Ok(tree)
}

fn is_complex(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::ComplexHalf | Kind::ComplexFloat | Kind::ComplexDouble
    )
}

fn check(kind: Kind, reduction: Reduction) -> Result<()> {
    let expected = match (reduction, kind) {
        (Reduction::Mean, Kind::Bool | Kind::Uint8 | Kind::Int8)
        | (Reduction::Mean, Kind::Int16 | Kind::Int | Kind::Int64) => {
            "floating-point values for a mean; convert them, or take the sum and divide it"
        }
        (Reduction::Sum, Kind::Bool) => {
            "numbers for a sum; convert the flags to `Int64` to count them, or take the maximum"
        }
        (Reduction::Max, kind) if is_complex(kind) => "values that have an order",
        _ => return Ok(()),
    };
    Err(Error::Argument {
        operation: "reduce",
        expected: expected.to_owned(),
        found: format!("{kind:?}"),
    })
}

fn reduce_one(group: &ProcessGroup, tensor: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let tensor = tensor.f_resolve_conj()?.f_resolve_neg()?.f_contiguous()?;
    let kind = tensor.f_kind()?;
    let result = match kind {
        // The backend does not know these.
        Kind::Int16 => tensor.f_to_kind(Kind::Int)?,
        Kind::Bool => tensor.f_to_kind(Kind::Uint8)?,
        _ => tensor.f_detach_copy()?,
    };
    let numbers = match is_complex(kind) {
        true => result.f_view_as_real()?,
        false => result.shallow_clone(),
    };
    if numbers.numel() > 0 {
        let op = match reduction {
            Reduction::Sum | Reduction::Mean => ReduceOp::Sum,
            Reduction::Max => ReduceOp::Max,
        };
        group.all_reduce(&numbers, op)?;
    }
    if reduction == Reduction::Mean {
        drop(
            numbers
                .shallow_clone()
                .f_div_scalar_(wire::count(group.size()))?,
        );
    }
    match result.f_kind()? == kind {
        true => Ok(result),
        false => Ok(result.f_to_kind(kind)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_that_make_no_sense_are_refused_with_advice() {
        for (kind, reduction, advice) in [
            (Kind::Int64, Reduction::Mean, "take the sum and divide it"),
            (Kind::Bool, Reduction::Sum, "to count them"),
            (Kind::ComplexFloat, Reduction::Max, "an order"),
        ] {
            let error = check(kind, reduction).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
        assert!(check(Kind::Int16, Reduction::Max).is_ok());
        assert!(check(Kind::BFloat16, Reduction::Mean).is_ok());
    }
}
