//! What a rank keeps of parameters, as boxes of these: the form in which checkpoints have it.

use std::collections::HashMap;
use std::ops::Range;

use accelerate_plan::parallel::{Layout, StateDictType};
use accelerate_torch::storage;
use tch::Tensor;

use super::model::ShardedModel;

/// The part of a parameter that this rank keeps.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The shape of the whole.
    pub(crate) shape: Vec<usize>,
    /// Which elements, counted in row-major order.
    pub(crate) range: Range<usize>,
    /// Their values, as a vector that shares the shard's memory.
    pub(crate) values: Tensor,
}

/// A box of a tensor whose elements lie one behind the other in a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first element in each dimension.
    pub(crate) offsets: Vec<usize>,
    /// The length in each dimension.
    pub(crate) sizes: Vec<usize>,
    /// Where it begins in the part.
    pub(crate) start: usize,
}

impl Piece {
    /// How many elements it has.
    pub(crate) fn len(&self) -> usize {
        self.sizes.iter().product()
    }
}

impl ShardedModel {
    /// What this rank keeps of each parameter, by the identity of the parameter's tensor.
    pub(crate) fn kept(&self) -> HashMap<usize, Kept> {
        let state = self.engine.lock();
        let members = state.members().map(|member| {
            let range = member.range.in_parameter;
            let shape = member
                .shape
                .iter()
                .map(|&size| usize::try_from(size).unwrap_or(0));
            let kept = Kept {
                shape: shape.collect(),
                range: range..range + member.range.length,
                values: member.slice.shallow_clone(),
            };
            (storage::identity(&member.parameter), kept)
        });
        members.collect()
    }

    /// Whether checkpoints hold what each rank keeps, in the place of whole weights.
    pub(crate) fn saves_shards(&self) -> bool {
        let state_dict = &self.plan().state_dict;
        state_dict.kind == StateDictType::Sharded && state_dict.layout == Layout::Fsdp
    }

    /// Whether checkpoints hold what each rank keeps in folders of DeepSpeed's.
    pub(crate) fn saves_as_deepspeed(&self) -> bool {
        let state_dict = &self.plan().state_dict;
        state_dict.kind == StateDictType::Sharded && state_dict.layout == Layout::DeepSpeed
    }

    /// Whether this rank's shards are those of the first copy of the model.
    pub(crate) fn has_first_copy(&self) -> bool {
        let copies = self.engine.groups.replicate.as_ref();
        copies.is_none_or(|copies| copies.rank() == 0)
    }
}

/// Cuts the elements of a range, counted in row-major order, into boxes: at most two for each
/// dimension, less one.
pub(crate) fn pieces(shape: &[usize], range: &Range<usize>) -> Vec<Piece> {
    let mut found = Vec::new();
    cut(shape, range.clone(), 0, &[], &mut found);
    found
}

/// Cuts a range of the dimensions that are left at the place `outer` of those before; its first
/// element is the part's `start`-th.
fn cut(
    shape: &[usize],
    range: Range<usize>,
    start: usize,
    outer: &[usize],
    found: &mut Vec<Piece>,
) {
    if range.is_empty() {
        return;
    }
    let Some((_, inner)) = shape.split_first() else {
        found.push(Piece {
            offsets: outer.to_vec(),
            sizes: vec![1; outer.len()],
            start,
        });
        return;
    };
    let row: usize = inner.iter().product();
    // The rows that are in the range as a whole; where it lies in one row, their end is before
    // their start.
    let rows = range.start.div_ceil(row)..range.end / row;
    if rows.start > rows.end {
        let place = rows.end;
        let within = range.start - place * row..range.end - place * row;
        cut(inner, within, start, &at(outer, place), found);
        return;
    }
    let (whole, tail) = (rows.start * row, rows.end * row);
    if range.start < whole {
        let place = rows.start - 1;
        let within = range.start - place * row..row;
        cut(inner, within, start, &at(outer, place), found);
    }
    if !rows.is_empty() {
        let mut offsets = at(outer, rows.start);
        offsets.resize(outer.len() + shape.len(), 0);
        let mut sizes = vec![1; outer.len()];
        sizes.push(rows.len());
        sizes.extend(inner);
        found.push(Piece {
            offsets,
            sizes,
            start: start + whole - range.start,
        });
    }
    let start = start + tail - range.start;
    cut(
        inner,
        0..range.end - tail,
        start,
        &at(outer, rows.end),
        found,
    );
}

/// A place in one more dimension.
fn at(outer: &[usize], place: usize) -> Vec<usize> {
    outer.iter().copied().chain([place]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_the_rest_of_a_row_rows_and_the_beginning_of_one() {
        let piece = |offsets: [usize; 2], sizes: [usize; 2], start| Piece {
            offsets: offsets.to_vec(),
            sizes: sizes.to_vec(),
            start,
        };
        assert_eq!(
            pieces(&[5, 4], &(3..18)),
            [
                piece([0, 3], [1, 1], 0),
                piece([1, 0], [3, 4], 1),
                piece([4, 0], [1, 2], 13)
            ]
        );
        assert_eq!(pieces(&[5, 4], &(9..11)), [piece([2, 1], [1, 2], 0)]);
        assert_eq!(pieces(&[5, 4], &(0..20)), [piece([0, 0], [5, 4], 0)]);
        assert!(pieces(&[5, 4], &(7..7)).is_empty());
        assert_eq!(pieces(&[], &(0..1))[0].len(), 1);
    }

    proptest! {
        #[test]
        fn pieces_are_the_range(
            shape in proptest::collection::vec(1usize..5, 0..4),
            ends in (0.0f64..1.0, 0.0f64..1.0),
        ) {
            let count: usize = shape.iter().product();
            let place = |part: f64| (part * (count + 1) as f64) as usize;
            let range = place(ends.0.min(ends.1))..place(ends.0.max(ends.1));
            let mut next = 0;
            for piece in pieces(&shape, &range) {
                prop_assert_eq!(piece.start, next);
                // The elements of a piece, one behind the other.
                for element in 0..piece.len() {
                    let (mut rest, mut flat, mut stride) = (element, 0, 1);
                    for axis in (0..shape.len()).rev() {
                        flat += (piece.offsets[axis] + rest % piece.sizes[axis]) * stride;
                        rest /= piece.sizes[axis];
                        stride *= shape[axis];
                    }
                    prop_assert_eq!(flat, range.start + next);
                    next += 1;
                }
            }
            prop_assert_eq!(next, range.len());
        }
    }
}
