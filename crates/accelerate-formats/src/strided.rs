//! Copying between layouts: the one loop under views, slices and chunks.

/// Where the elements of a box lie: the place of the first, and steps between neighbours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    /// In elements.
    pub(crate) offset: usize,
    /// In elements, one for each dimension.
    pub(crate) strides: &'a [usize],
}

/// Row-major strides of a shape, or `None` where they do not fit a `usize`.
pub(crate) fn row_major(shape: &[usize]) -> Option<Vec<usize>> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1usize;
    for (stride, &length) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.checked_mul(length.max(1))?;
    }
    Some(strides)
}

/// Whether the elements lie one after another in row-major order.
pub(crate) fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut step = 1usize;
    shape.iter().zip(strides).rev().all(|(&length, &stride)| {
        let fits = length == 1 || stride == step;
        step = step.saturating_mul(length);
        fits
    })
}

/// The place after the last element of a box, in elements; 0 for a box without elements.
pub(crate) fn span(shape: &[usize], strides: &[usize], offset: usize) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(offset, |last, (&length, &stride)| {
            last.checked_add((length - 1).checked_mul(stride)?)
        })?;
    last.checked_add(1)
}

/// Copies a box of elements of `size` bytes.
///
/// Returns `None`, having copied a part, if an element lies outside either slice: callers check
/// layouts before.
pub(crate) fn copy_box(
    size: usize,
    shape: &[usize],
    (from, from_layout): (&[u8], Layout<'_>),
    (to, to_layout): (&mut [u8], Layout<'_>),
) -> Option<()> {
    if shape.contains(&0) {
        return Some(());
    }
    let block = trailing_block(shape, from_layout.strides, to_layout.strides);
    let outer = &shape[..block.outer_dimensions];
    let bytes = block.elements.checked_mul(size)?;
    let mut index = vec![0usize; outer.len()];
    let (mut source, mut target) = (from_layout.offset, to_layout.offset);
    loop {
        let begin = source.checked_mul(size)?;
        let source_bytes = from.get(begin..begin.checked_add(bytes)?)?;
        let begin = target.checked_mul(size)?;
        to.get_mut(begin..begin.checked_add(bytes)?)?
            .copy_from_slice(source_bytes);
        // The next index of the outer dimensions, the last one running fastest.
        let mut dimension = outer.len();
        loop {
            if dimension == 0 {
                return Some(());
            }
            dimension -= 1;
            let (step, back) = (from_layout.strides[dimension], to_layout.strides[dimension]);
            index[dimension] += 1;
            if index[dimension] < outer[dimension] {
                source = source.checked_add(step)?;
                target = target.checked_add(back)?;
                break;
            }
            source -= step * (outer[dimension] - 1);
            target -= back * (outer[dimension] - 1);
            index[dimension] = 0;
        }
    }
}

/// The inner dimensions that are in one piece on both sides.
struct Block {
    outer_dimensions: usize,
    elements: usize,
}

fn trailing_block(shape: &[usize], from: &[usize], to: &[usize]) -> Block {
    let mut elements = 1usize;
    let mut outer_dimensions = shape.len();
    for dimension in (0..shape.len()).rev() {
        let length = shape[dimension];
        let in_one_piece = from[dimension] == elements && to[dimension] == elements;
        if length != 1 && !in_one_piece {
            break;
        }
        elements = elements.saturating_mul(length);
        outer_dimensions = dimension;
    }
    Block {
        outer_dimensions,
        elements,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_transposed_view_comes_out_in_rows() {
        let from = [0u8, 1, 2, 3, 4, 5];
        let mut to = [0u8; 6];
        copy_box(
            1,
            &[3, 2],
            (
                &from,
                Layout {
                    offset: 0,
                    strides: &[1, 3],
                },
            ),
            (
                &mut to,
                Layout {
                    offset: 0,
                    strides: &[2, 1],
                },
            ),
        )
        .unwrap();
        assert_eq!(to, [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn an_element_outside_is_refused() {
        let mut to = [0u8; 4];
        let from = Layout {
            offset: 2,
            strides: &[1],
        };
        let into = Layout {
            offset: 0,
            strides: &[1],
        };
        assert!(copy_box(1, &[3], (&[0; 4], from), (&mut to, into)).is_none());
        let huge = Layout {
            offset: usize::MAX,
            strides: &[1],
        };
        assert!(copy_box(4, &[2], (&[0; 4], huge), (&mut to, into)).is_none());
    }

    #[test]
    fn contiguity_ignores_dimensions_of_one() {
        assert!(is_row_major(&[2, 1, 3], &[3, 77, 1]));
        assert!(is_row_major(&[0, 4], &[9, 9]));
        assert!(is_row_major(&[], &[]));
        assert!(!is_row_major(&[2, 3], &[1, 2]));
        assert!(!is_row_major(&[2], &[0]));
    }

    proptest! {
        #[test]
        fn every_element_lands_where_its_index_says(
            shape in prop::collection::vec(1usize..4, 0..4),
            seed in prop::collection::vec(0usize..5, 4),
            offset in 0usize..3,
        ) {
            let strides: Vec<usize> = seed.into_iter().take(shape.len()).collect();
            let end = span(&shape, &strides, offset).unwrap();
            let from: Vec<u8> = (0..end as u32).flat_map(|n| (n as u16).to_le_bytes()).collect();
            let rows = row_major(&shape).unwrap();
            let count: usize = shape.iter().product();
            let mut to = vec![0xffu8; count * 2];
            copy_box(
                2,
                &shape,
                (&from, Layout { offset, strides: &strides }),
                (&mut to, Layout { offset: 0, strides: &rows }),
            )
            .unwrap();
            for flat in 0..count {
                let index = rows.iter().zip(&shape).map(|(&row, &length)| flat / row % length);
                let place = offset + index.zip(&strides).map(|(i, &stride)| i * stride).sum::<usize>();
                let found = u16::from_le_bytes([to[2 * flat], to[2 * flat + 1]]);
                prop_assert_eq!(usize::from(found), place);
            }
        }
    }
}
