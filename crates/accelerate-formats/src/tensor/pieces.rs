//! The data of a tensor a piece at a time.

use std::sync::Arc;

use super::{Data, StoredTensor, TensorBytes};
use crate::boxes::{self, Part};
use crate::error::Result;
use crate::strided;

/// The data of a tensor in row-major order, little-endian, piece after piece. Every piece is a whole
/// number of elements; of elements smaller than a byte there is one piece.
pub type Pieces<'t> = Box<dyn Iterator<Item = Result<TensorBytes>> + 't>;

impl StoredTensor {
    /// Its data in row-major order, little-endian, piece after piece: without a copy where it lies
    /// so, else a few rows at a time. Every piece is a whole number of elements.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), also for the pieces.
    pub fn pieces(&self) -> Result<Pieces<'_>> {
        let Data::Ready(_) = &self.storage.data else {
            return self.to_owner().map(whole);
        };
        if self.swaps() || self.is_contiguous() {
            return self.to_owner().map(whole);
        }
        let part = Part {
            offsets: vec![0; self.shape.len()],
            tensor: self.clone(),
        };
        Ok(Box::new(boxes::pieces(self.dtype, &self.shape, vec![part])))
    }

    /// The box that begins at `from` and has the lengths `sizes`, where it lies in one piece and
    /// in the right order. The box must lie within the tensor.
    pub(crate) fn box_in_place(&self, from: &[usize], sizes: &[usize]) -> Option<TensorBytes> {
        let Data::Ready(owner) = &self.storage.data else {
            return None;
        };
        if self.swaps() || !strided::is_row_major(sizes, &self.strides) {
            return None;
        }
        let size = self.dtype.size_in_bits() / 8;
        if size == 0 {
            return None;
        }
        let steps = from.iter().zip(&self.strides);
        let first = steps.map(|(index, step)| index * step).sum::<usize>() + self.offset;
        let bytes = sizes.iter().product::<usize>() * size;
        let begin = if bytes == 0 { 0 } else { first * size };
        Some(TensorBytes::new(Arc::clone(owner), begin..begin + bytes))
    }
}

fn whole<'t>(bytes: TensorBytes) -> Pieces<'t> {
    Box::new(std::iter::once(Ok(bytes)))
}
