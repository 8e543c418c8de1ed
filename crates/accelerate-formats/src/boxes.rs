//! Tensors that lie in parts: boxes, what two of them have in common, and the whole in row-major
//! order a piece at a time.

use crate::dtype::Dtype;
use crate::error::Result;
use crate::strided::{self, Layout};
use crate::tensor::{StoredTensor, TensorBytes, zeros};

/// The most bytes that are put together in memory at a time, unless one row of the last dimensions
/// has more.
const GATHERED_BYTES: usize = 8 << 20;

/// A box: its first element, and its lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) offsets: &'a [usize],
    pub(crate) sizes: &'a [usize],
}

/// What two boxes have in common.
#[derive(Debug)]
pub(crate) struct Overlap {
    pub(crate) begin: Vec<usize>,
    pub(crate) sizes: Vec<usize>,
}

impl Span<'_> {
    /// Where this begins and ends within both, dimension by dimension.
    fn common<'s>(&'s self, other: &'s Span<'_>) -> impl Iterator<Item = (usize, usize)> + 's {
        let ours = self.offsets.iter().zip(self.sizes);
        let theirs = other.offsets.iter().zip(other.sizes);
        ours.zip(theirs)
            .map(|((&offset, &size), (&begin, &length))| {
                (offset.max(begin), (offset + size).min(begin + length))
            })
    }

    pub(crate) fn overlaps(&self, other: &Span<'_>) -> bool {
        self.common(other).all(|(begin, end)| begin < end)
    }

    pub(crate) fn overlap(&self, other: &Span<'_>) -> Option<Overlap> {
        self.overlaps(other).then(|| {
            let (begin, sizes) = self
                .common(other)
                .map(|(begin, end)| (begin, end - begin))
                .unzip();
            Overlap { begin, sizes }
        })
    }

    pub(crate) fn elements(&self) -> usize {
        self.sizes.iter().product()
    }
}

impl Overlap {
    /// The same place, counted from the first element of a box that holds it.
    pub(crate) fn within(&self, span: &Span<'_>) -> Vec<usize> {
        let places = self.begin.iter().zip(span.offsets);
        places.map(|(begin, offset)| begin - offset).collect()
    }
}

/// Whether two of the boxes have an element in common. Boxes that follow each other along the first
/// dimension are compared with their neighbours only.
pub(crate) fn collide(mut spans: Vec<Span<'_>>) -> bool {
    spans.retain(|span| span.elements() > 0);
    let first = |span: &Span<'_>| span.offsets.first().copied().unwrap_or(0);
    spans.sort_by_key(first);
    let mut rest = spans.as_slice();
    while let Some((one, others)) = rest.split_first() {
        let end = first(one) + one.sizes.first().copied().unwrap_or(1);
        let near = others.iter().take_while(|other| first(other) < end);
        if near.into_iter().any(|other| one.overlaps(other)) {
            return true;
        }
        rest = others;
    }
    false
}

/// A part of a tensor, where it begins in the whole.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) offsets: Vec<usize>,
    pub(crate) tensor: StoredTensor,
}

impl Part {
    fn span(&self) -> Span<'_> {
        Span {
            offsets: &self.offsets,
            sizes: self.tensor.shape(),
        }
    }
}

/// Copies everything that the parts have of a box into `out`, in row-major order. `None` where a
/// part does not fit its own bytes.
pub(crate) fn gather(span: &Span<'_>, parts: &[Part], out: &mut [u8]) -> Result<Option<()>> {
    let rows = strided::row_major(span.sizes).unwrap_or_default();
    for part in parts {
        let Some(overlap) = span.overlap(&part.span()) else {
            continue;
        };
        let begin = overlap.within(span);
        let layout = Layout {
            offset: begin
                .iter()
                .zip(&rows)
                .map(|(index, step)| index * step)
                .sum(),
            strides: &rows,
        };
        let from = overlap.within(&part.span());
        let copied = part.tensor.read_box((&from, &overlap.sizes), out, layout)?;
        if copied.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// The whole of a tensor that its parts cover, in row-major order: what lies in order is handed out
/// where it is, the rest is put together a few rows at a time.
pub(crate) fn pieces(dtype: Dtype, shape: &[usize], parts: Vec<Part>) -> BoxPieces {
    let whole = Waiting {
        offsets: vec![0; shape.len()],
        sizes: shape.to_vec(),
    };
    BoxPieces {
        element_bytes: dtype.size_in_bits() / 8,
        parts,
        waiting: vec![whole],
    }
}

/// See [`pieces`].
#[derive(Debug)]
pub(crate) struct BoxPieces {
    element_bytes: usize,
    parts: Vec<Part>,
    /// What is still to come, the next last.
    waiting: Vec<Waiting>,
}

#[derive(Debug, Clone)]
struct Waiting {
    offsets: Vec<usize>,
    sizes: Vec<usize>,
}

impl Waiting {
    fn span(&self) -> Span<'_> {
        Span {
            offsets: &self.offsets,
            sizes: &self.sizes,
        }
    }
}

impl Iterator for BoxPieces {
    type Item = Result<TensorBytes>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = self.waiting.pop()?;
            if next.span().elements() == 0 {
                continue;
            }
            if let Some(bytes) = self.in_place(&next.span()) {
                return Some(Ok(bytes));
            }
            match self.cuts(&next) {
                Some((dimension, cuts)) => self.cut(&next, dimension, &cuts),
                None => return Some(self.gathered(&next.span())),
            }
        }
    }
}

impl BoxPieces {
    fn in_place(&self, span: &Span<'_>) -> Option<TensorBytes> {
        let part = self.parts.iter().find(|part| {
            let found = span.overlap(&part.span());
            found.is_some_and(|overlap| overlap.sizes == span.sizes)
        })?;
        let whole = Overlap {
            begin: span.offsets.to_vec(),
            sizes: span.sizes.to_vec(),
        };
        part.tensor
            .box_in_place(&whole.within(&part.span()), span.sizes)
    }

    /// Where to cut a box so that its pieces follow each other in row-major order: where parts
    /// begin, or into bands of rows where it is large.
    fn cuts(&self, next: &Waiting) -> Option<(usize, Vec<usize>)> {
        let dimension = next.sizes.iter().position(|&size| size > 1)?;
        let begin = *next.offsets.get(dimension)?;
        let size = *next.sizes.get(dimension)?;
        let edges = self.parts.iter().filter_map(|part| {
            let first = *part.offsets.get(dimension)?;
            Some([first, first + part.tensor.shape().get(dimension)?])
        });
        let mut cuts: Vec<usize> = edges
            .flatten()
            .filter(|&edge| edge > begin && edge < begin + size)
            .collect();
        if cuts.is_empty() {
            let row_bytes = next.span().elements() / size * self.element_bytes;
            let rows = (GATHERED_BYTES / row_bytes.max(1)).max(1);
            cuts = (begin..begin + size).step_by(rows).skip(1).collect();
        }
        cuts.sort_unstable();
        cuts.dedup();
        (!cuts.is_empty()).then_some((dimension, cuts))
    }

    fn cut(&mut self, next: &Waiting, dimension: usize, cuts: &[usize]) {
        let begin = next.offsets.get(dimension).copied().unwrap_or(0);
        let mut end = begin + next.sizes.get(dimension).copied().unwrap_or(0);
        // From the back, since the last one pushed is taken first.
        for &edge in cuts.iter().rev().chain([&begin]) {
            let mut piece = next.clone();
            if let Some(offset) = piece.offsets.get_mut(dimension) {
                *offset = edge;
            }
            if let Some(size) = piece.sizes.get_mut(dimension) {
                *size = end - edge;
            }
            self.waiting.push(piece);
            end = edge;
        }
    }

    fn gathered(&self, span: &Span<'_>) -> Result<TensorBytes> {
        let mut out = zeros(span.elements() * self.element_bytes)?;
        let copied = gather(span, &self.parts, &mut out)?;
        debug_assert!(copied.is_some(), "parts were checked when they were made");
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::tensor::Storage;

    fn numbers(count: usize) -> Vec<u8> {
        (0..count as u32).flat_map(u32::to_le_bytes).collect()
    }

    /// A box of the numbers of a matrix, as a tensor of its own.
    fn part(all: &[u8], width: usize, (top, left): (usize, usize), sizes: [usize; 2]) -> Part {
        let rows = top..top + sizes[0];
        let bytes: Vec<u8> = rows
            .flat_map(|row| {
                let begin = (row * width + left) * 4;
                all[begin..begin + sizes[1] * 4].to_vec()
            })
            .collect();
        let storage = Arc::new(Storage::new(bytes));
        Part {
            offsets: vec![top, left],
            tensor: StoredTensor::contiguous(Dtype::U32, sizes, storage).unwrap(),
        }
    }

    fn joined(pieces: BoxPieces) -> (Vec<u8>, usize) {
        let pieces: Vec<TensorBytes> = pieces.map(Result::unwrap).collect();
        (pieces.concat_bytes(), pieces.len())
    }

    trait Concat {
        fn concat_bytes(&self) -> Vec<u8>;
    }

    impl Concat for Vec<TensorBytes> {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|piece| piece.to_vec()).collect()
        }
    }

    #[test]
    fn rows_of_ranks_are_handed_out_where_they_are() {
        let all = numbers(5 * 3);
        let parts = vec![
            part(&all, 3, (3, 0), [2, 3]),
            part(&all, 3, (0, 0), [3, 3]),
            part(&all, 3, (5, 0), [0, 3]),
        ];
        let (bytes, count) = joined(pieces(Dtype::U32, &[5, 3], parts));
        assert_eq!((bytes, count), (all, 2));
    }

    #[test]
    fn large_tensors_that_are_cut_by_columns_come_in_bands() {
        let (rows, width) = (4, (GATHERED_BYTES / 4) / 2);
        let all = numbers(rows * width);
        let half = width / 2;
        let parts = vec![
            part(&all, width, (0, half), [rows, width - half]),
            part(&all, width, (0, 0), [rows, half]),
        ];
        let (bytes, count) = joined(pieces(Dtype::U32, &[rows, width], parts));
        assert_eq!(count, 2, "two rows at a time");
        assert!(bytes == all);
    }

    #[test]
    fn boxes_that_share_an_element_collide() {
        let span = |offsets, sizes| Span { offsets, sizes };
        assert!(collide(vec![
            span(&[0, 0], &[2, 2]),
            span(&[1, 1], &[2, 2])
        ]));
        assert!(!collide(vec![
            span(&[0, 2], &[2, 2]),
            span(&[0, 0], &[2, 2]),
            span(&[2, 0], &[2, 4]),
            span(&[1, 0], &[0, 4]),
        ]));
        assert!(collide(vec![span(&[], &[]), span(&[], &[])]));
    }

    proptest! {
        #[test]
        fn a_grid_of_parts_makes_the_whole(
            heights in prop::collection::vec(0usize..4, 1..4),
            widths in prop::collection::vec(0usize..4, 1..4),
        ) {
            let (rows, width) = (heights.iter().sum::<usize>(), widths.iter().sum::<usize>());
            let all = numbers(rows * width);
            let mut parts = Vec::new();
            let mut top = 0;
            for &height in &heights {
                let mut left = 0;
                for &across in &widths {
                    parts.push(part(&all, width, (top, left), [height, across]));
                    left += across;
                }
                top += height;
            }
            let spans = parts.iter().map(Part::span).collect();
            prop_assert!(!collide(spans));
            let (bytes, _) = joined(pieces(Dtype::U32, &[rows, width], parts));
            prop_assert_eq!(bytes, all);
        }
    }
}
