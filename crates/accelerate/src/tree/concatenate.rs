//! Trees put together, cut and filled up.

use std::ops::Range;

use tch::Tensor;

use super::{Tree, leaves};
use crate::{Error, Result};

/// Joins trees of one structure, tensor by tensor, along `dim`.
///
/// What is no tensor is taken from the first.
///
/// # Shapes
/// - inputs: `[..., n, ...]`, where `n` at `dim` may differ
/// - output: `[..., sum of n, ...]`
///
/// # Errors
/// [`Error::Argument`] for no trees at all, or trees of different structure; shapes that
/// cannot be joined.
///
/// # Source
/// `accelerate.utils.concatenate`. Differs: no trees are an error with a reason, and
/// structures are compared first.
pub fn concatenate<T: Tree>(trees: impl IntoIterator<Item = T>, dim: i64) -> Result<T> {
    let argument = |expected: &str, found: String| Error::Argument {
        operation: "concatenate",
        expected: expected.to_owned(),
        found,
    };
    let mut trees = trees.into_iter();
    let mut joined = trees
        .next()
        .ok_or_else(|| argument("at least one tree", "none".to_owned()))?;
    let rest: Vec<T> = trees.collect();
    let places = places(&joined)?;
    for (tree, number) in rest.iter().zip(1..) {
        let own = self::places(tree)?;
        if own != places {
            return Err(argument(
                "trees of one structure",
                format!("{places:?} in tree 0 and {own:?} in tree {number}"),
            ));
        }
    }
    let rest = rest
        .iter()
        .map(|tree| leaves(tree))
        .collect::<Result<Vec<_>>>()?;
    let mut place = 0;
    joined.visit_mut(&mut |leaf| {
        if !rest.is_empty() {
            let mut parts = vec![leaf.shallow_clone()];
            parts.extend(rest.iter().map(|tree| tree[place].shallow_clone()));
            *leaf = Tensor::f_cat(&parts, dim)?;
        }
        place += 1;
        Ok(())
    })?;
    Ok(joined)
}

/// The names of the tensors, by which structures are compared.
fn places(tree: &dyn Tree) -> Result<Vec<String>> {
    let mut found = Vec::new();
    tree.visit_paths(&super::TreePath::root(), &mut |path, _| {
        found.push(path.to_string());
        Ok(())
    })?;
    Ok(found)
}

/// The rows of every tensor in a range; those that are not there are left out.
///
/// # Shapes
/// - input: `[n, ...]`
/// - output: `[rows, ...]`, views of the input
///
/// # Errors
/// [`Error::Argument`] for a tensor without dimensions.
///
/// # Source
/// `accelerate.utils.slice_tensors`.
pub fn slice_tensors<T: Tree>(mut tree: T, rows: Range<i64>) -> Result<T> {
    tree.visit_mut(&mut |leaf| {
        let length = leaf.size().first().copied().ok_or(Error::Argument {
            operation: "slice_tensors",
            expected: "tensors with at least one dimension".to_owned(),
            found: "a scalar".to_owned(),
        })?;
        let start = rows.start.clamp(0, length);
        let end = rows.end.clamp(start, length);
        *leaf = leaf.f_narrow(0, start, end - start)?;
        Ok(())
    })?;
    Ok(tree)
}

/// Fills up the batch of every tensor with copies of its last row, so that it can be cut
/// into `parts` equal ones.
///
/// # Shapes
/// - input: `[n, ...]`
/// - output: `[n rounded up to a multiple of parts, ...]`
///
/// # Errors
/// [`Error::Argument`] for tensors without rows, or zero parts.
///
/// # Source
/// `accelerate.utils.pad_input_tensors`, which repeats the last row too.
pub fn pad_input_tensors<T: Tree>(mut tree: T, parts: usize) -> Result<T> {
    let parts = i64::try_from(parts).unwrap_or(i64::MAX);
    tree.visit_mut(&mut |leaf| {
        let length = leaf.size().first().copied().unwrap_or(0);
        if length == 0 || parts == 0 {
            return Err(Error::Argument {
                operation: "pad_input_tensors",
                expected: "tensors with at least one row, and at least one part".to_owned(),
                found: format!("{:?} in {parts} parts", leaf.size()),
            });
        }
        let missing = (parts - length % parts) % parts;
        if missing > 0 {
            let mut shape = leaf.size();
            shape[0] = missing;
            let last = leaf.f_narrow(0, length - 1, 1)?.f_expand(&shape, false)?;
            *leaf = Tensor::f_cat(&[leaf.shallow_clone(), last], 0)?;
        }
        Ok(())
    })?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Batch = (Tensor, BTreeMap<&'static str, Tensor>, i64);

    fn batch(start: i64, rows: i64) -> Batch {
        let ids = Tensor::arange_start(start, start + rows, (tch::Kind::Int64, tch::Device::Cpu));
        let map = BTreeMap::from([("mask", ids.unsqueeze(1))]);
        (ids, map, start)
    }

    #[test]
    fn trees_are_joined_tensor_by_tensor() -> Result<()> {
        let (ids, map, start) = concatenate([batch(0, 2), batch(2, 3), batch(5, 1)], 0)?;
        assert_eq!(Vec::<i64>::try_from(&ids)?, [0, 1, 2, 3, 4, 5]);
        assert_eq!(map["mask"].size(), [6, 1]);
        assert_eq!(start, 0);
        assert_eq!(concatenate([batch(7, 2)], 0)?.0.size(), [2]);
        Ok(())
    }

    #[test]
    fn trees_of_different_structure_are_not_joined() {
        let one = BTreeMap::from([("a", Tensor::from_slice(&[1]))]);
        let other = BTreeMap::from([("b", Tensor::from_slice(&[1]))]);
        let error = concatenate([one, other], 0).unwrap_err().to_string();
        assert!(error.contains("[\"[a]\"] in tree 0"), "{error}");
        let none = concatenate(Vec::<Tensor>::new(), 0).unwrap_err();
        assert!(none.to_string().contains("at least one tree"), "{none}");
    }

    #[test]
    fn a_slice_keeps_to_the_rows_that_are_there() -> Result<()> {
        let (ids, map, _) = slice_tensors(batch(0, 5), 3..9)?;
        assert_eq!(Vec::<i64>::try_from(&ids)?, [3, 4]);
        assert_eq!(map["mask"].size(), [2, 1]);
        assert_eq!(slice_tensors(batch(0, 5), 7..9)?.0.size(), [0]);
        assert!(slice_tensors(Tensor::from(1), 0..1).is_err());
        Ok(())
    }

    #[test]
    fn a_batch_is_filled_up_with_its_last_row() -> Result<()> {
        let ids = pad_input_tensors(batch(0, 5), 4)?.0;
        assert_eq!(Vec::<i64>::try_from(&ids)?, [0, 1, 2, 3, 4, 4, 4, 4]);
        assert_eq!(pad_input_tensors(batch(0, 4), 4)?.0.size(), [4]);
        assert!(pad_input_tensors(batch(0, 0), 4).is_err());
        Ok(())
    }
}
