//! One tensor as it lies in a file: type, shape, strides, and the bytes it looks at.
//!
//! Files of `torch.save` hold storages, and tensors are views of them: transposed, cut out, or two
//! names for one. [`StoredTensor`] keeps that; a tensor of a safetensors file is the simple case.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::dtype::Dtype;
use crate::error::{Error, LayoutFault, Result, TorchFault};
use crate::mmap::MappedBytes;
use crate::strided::{self, Layout};

mod bytes;
mod pieces;

pub use self::bytes::TensorBytes;
pub use self::pieces::Pieces;

/// The most dimensions of a tensor, as in libtorch.
const MAX_DIMENSIONS: usize = 64;
/// How much larger than its bytes an expanded tensor may become when it is unfolded.
const MAX_UNFOLDED_BYTES: usize = 256 << 20;

/// Something that owns bytes, on any thread: a mapped file, or memory.
pub type BytesOwner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes that one or several tensors look at.
pub struct Storage {
    data: Data,
    big_endian: bool,
    /// The mapped bytes, where it is a part of a file.
    mapped: Option<MappedBytes>,
}

enum Data {
    Ready(BytesOwner),
    Deflated(Deflated),
    Pending { bytes: usize },
}

/// A record that is unpacked each time it is read.
pub(crate) struct Deflated {
    pub(crate) packed: MappedBytes,
    pub(crate) bytes: usize,
    pub(crate) record: String,
}

impl Storage {
    /// Bytes that are there, little-endian.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::from_owner(Arc::new(owner))
    }

    /// As [`new`](Self::new), for an owner that is shared already.
    pub fn from_owner(owner: BytesOwner) -> Self {
        Self {
            data: Data::Ready(owner),
            big_endian: false,
            mapped: None,
        }
    }

    /// Bytes that a [`TorchWriter`](crate::TorchWriter) will be given later.
    pub fn pending(bytes: usize) -> Self {
        Self {
            data: Data::Pending { bytes },
            big_endian: false,
            mapped: None,
        }
    }

    pub(crate) fn deflated(deflated: Deflated, big_endian: bool) -> Self {
        Self {
            mapped: Some(deflated.packed.clone()),
            data: Data::Deflated(deflated),
            big_endian,
        }
    }

    pub(crate) fn of_mapped(bytes: MappedBytes, big_endian: bool) -> Self {
        Self {
            mapped: Some(bytes.clone()),
            data: Data::Ready(Arc::new(bytes)),
            big_endian,
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Ready(owner) => (**owner).as_ref().len(),
            Data::Deflated(deflated) => deflated.bytes,
            Data::Pending { bytes } => *bytes,
        }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes are still to come.
    pub fn is_pending(&self) -> bool {
        matches!(self.data, Data::Pending { .. })
    }

    /// Whether numbers begin with their most significant byte.
    pub fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// The part of a file that holds the bytes, where they are not in memory of their own; packed
    /// if [`is_deflated`](Self::is_deflated).
    pub fn mapped(&self) -> Option<&MappedBytes> {
        self.mapped.as_ref()
    }

    /// Whether the bytes are packed in their file.
    pub fn is_deflated(&self) -> bool {
        matches!(self.data, Data::Deflated(_))
    }

    /// All bytes as they are stored; a deflated record is unpacked for it.
    ///
    /// # Errors
    /// [`Error::Torch`] if unpacking fails, [`Error::PendingStorage`] if the bytes are still to come.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match &self.data {
            Data::Ready(owner) => Ok(Cow::Borrowed((**owner).as_ref())),
            Data::Deflated(deflated) => Ok(Cow::Owned(deflated.inflate()?)),
            Data::Pending { bytes } => Err(Error::PendingStorage { bytes: *bytes }),
        }
    }
}

impl Deflated {
    fn inflate(&self) -> Result<Vec<u8>> {
        crate::torch::inflate(&self.packed, self.bytes).map_err(|source| Error::Torch {
            path: self.packed.file().path().to_owned(),
            fault: Box::new(TorchFault::Inflate {
                record: self.record.clone(),
                source,
            }),
        })
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage")
            .field("bytes", &self.len())
            .field("pending", &self.is_pending())
            .field("big_endian", &self.big_endian)
            .finish()
    }
}

/// A tensor in a file: a view of a [`Storage`] that was checked to lie within it.
///
/// Cloning it copies no data, and keeps a mapped file mapped.
#[derive(Debug, Clone)]
pub struct StoredTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    storage: Arc<Storage>,
    requires_grad: bool,
    is_parameter: bool,
}

/// What a tensor looks at, and how: two tensors of one look are tied.
///
/// Storages are told apart by where they are in memory, so looks are to be compared only while the
/// tensors live.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Look {
    storage: *const Storage,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    dtype: Dtype,
}

impl StoredTensor {
    /// A tensor in row-major order that begins with its storage.
    ///
    /// # Errors
    /// As [`strided`](Self::strided).
    pub fn contiguous(
        dtype: Dtype,
        shape: impl Into<Vec<usize>>,
        storage: Arc<Storage>,
    ) -> Result<Self, LayoutFault> {
        let shape = shape.into();
        let strides = strided::row_major(&shape).ok_or_else(|| LayoutFault::SizeOverflow {
            dtype,
            shape: shape.clone(),
        })?;
        Self::strided(dtype, shape, strides, 0, storage)
    }

    /// A tensor that fills its storage, which was checked before.
    pub(crate) fn in_rows(dtype: Dtype, shape: Vec<usize>, storage: Arc<Storage>) -> Self {
        // Strides that overflow belong to a tensor without elements.
        let strides = strided::row_major(&shape).unwrap_or_else(|| vec![0; shape.len()]);
        Self {
            dtype,
            shape,
            strides,
            offset: 0,
            storage,
            requires_grad: false,
            is_parameter: false,
        }
    }

    /// A view with strides and an offset, both in elements.
    ///
    /// # Errors
    /// [`LayoutFault`] if it does not lie within the storage.
    pub fn strided(
        dtype: Dtype,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
        storage: Arc<Storage>,
    ) -> Result<Self, LayoutFault> {
        let tensor = Self {
            dtype,
            shape,
            strides,
            offset,
            storage,
            requires_grad: false,
            is_parameter: false,
        };
        tensor.check()?;
        Ok(tensor)
    }

    fn check(&self) -> Result<(), LayoutFault> {
        let (dtype, shape) = (self.dtype, &self.shape);
        let storage_bytes = self.storage.len();
        if shape.len() != self.strides.len() || shape.len() > MAX_DIMENSIONS {
            return Err(LayoutFault::Dimensions {
                dimensions: shape.len(),
                strides: self.strides.len(),
                limit: MAX_DIMENSIONS,
            });
        }
        let overflow = || LayoutFault::SizeOverflow {
            dtype,
            shape: shape.clone(),
        };
        let bits = dtype.bits_of(shape).ok_or_else(overflow)?;
        if dtype.size_in_bits() < 8
            && !(bits.is_multiple_of(8) && self.offset == 0 && self.is_contiguous())
        {
            return Err(LayoutFault::Packed {
                dtype,
                shape: shape.clone(),
            });
        }
        let end = if self.is_contiguous() && !shape.contains(&0) {
            let offset = self.offset.checked_mul(dtype.size_in_bits());
            offset
                .and_then(|offset| offset.checked_add(bits))
                .map(|bits| bits.div_ceil(8))
        } else {
            strided::span(shape, &self.strides, self.offset)
                .and_then(|span| span.checked_mul(dtype.size_in_bits() / 8))
        };
        if end.is_none_or(|end| end > storage_bytes) {
            return Err(LayoutFault::OutOfStorage {
                dtype,
                shape: shape.clone(),
                strides: self.strides.clone(),
                offset: self.offset,
                storage_bytes,
            });
        }
        if bits / 8 > storage_bytes.max(MAX_UNFOLDED_BYTES) {
            return Err(LayoutFault::Expanded {
                shape: shape.clone(),
                storage_bytes,
                needed_bytes: bits / 8,
                limit_bytes: MAX_UNFOLDED_BYTES,
            });
        }
        Ok(())
    }

    /// The same tensor, marked as one that wants a gradient.
    #[must_use]
    pub fn with_requires_grad(mut self, requires_grad: bool) -> Self {
        self.requires_grad = requires_grad;
        self
    }

    /// The same tensor, marked as a parameter of a module.
    #[must_use]
    pub fn into_parameter(mut self, requires_grad: bool) -> Self {
        self.requires_grad = requires_grad;
        self.is_parameter = true;
        self
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its shape; empty for a single value.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The steps between neighbours of each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Its first element, counted from the start of the storage.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The bytes it looks at.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Whether it was saved wanting a gradient.
    pub fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    /// Whether it was saved as a parameter of a module.
    pub fn is_parameter(&self) -> bool {
        self.is_parameter
    }

    /// Whether both look at the same bytes: they were one tensor, or views of one.
    pub fn shares_storage_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// What it looks at; none without elements, for such tensors are never one another.
    pub fn look(&self) -> Option<Look> {
        (self.byte_len() > 0).then(|| Look {
            storage: Arc::as_ptr(&self.storage),
            offset: self.offset,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            dtype: self.dtype,
        })
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes of its elements in row-major order.
    pub fn byte_len(&self) -> usize {
        // Checked on construction.
        self.dtype.bits_of(&self.shape).unwrap_or(0) / 8
    }

    /// Whether its elements lie one after another in row-major order.
    pub fn is_contiguous(&self) -> bool {
        strided::is_row_major(&self.shape, &self.strides)
    }

    fn range(&self) -> Range<usize> {
        let begin = if self.byte_len() == 0 {
            0
        } else {
            self.offset * self.dtype.size_in_bits() / 8
        };
        begin..begin + self.byte_len()
    }

    /// Its data in row-major order, little-endian.
    ///
    /// Borrowed where it lies so in the file; gathered into memory otherwise.
    ///
    /// # Errors
    /// As [`Storage::bytes`], and [`Error::OutOfMemory`].
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        let stored = self.storage.bytes()?;
        if self.is_contiguous() && !self.swaps() {
            return Ok(match stored {
                Cow::Borrowed(all) => Cow::Borrowed(all.get(self.range()).unwrap_or_default()),
                Cow::Owned(all) if self.range() == (0..all.len()) => Cow::Owned(all),
                Cow::Owned(all) => Cow::Owned(all.get(self.range()).unwrap_or_default().to_vec()),
            });
        }
        let mut gathered = zeros(self.byte_len())?;
        self.gather(&stored, &mut gathered);
        Ok(Cow::Owned(gathered))
    }

    /// Puts the data in row-major order, little-endian, into `out`, in place of what it held.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn read_into(&self, out: &mut Vec<u8>) -> Result<()> {
        let stored = self.storage.bytes()?;
        out.clear();
        reserve(out, self.byte_len())?;
        if self.is_contiguous() && !self.swaps() {
            out.extend_from_slice(stored.get(self.range()).unwrap_or_default());
        } else {
            out.resize(self.byte_len(), 0);
            self.gather(&stored, out);
        }
        Ok(())
    }

    /// Copies the box that begins at `from` and has the lengths `sizes` to a place in `out` that
    /// `layout` tells. The box must lie within the tensor.
    pub(crate) fn read_box(
        &self,
        (from, sizes): (&[usize], &[usize]),
        out: &mut [u8],
        layout: Layout<'_>,
    ) -> Result<Option<()>> {
        let stored = self.storage.bytes()?;
        let size = self.dtype.size_in_bits() / 8;
        let begin = from
            .iter()
            .zip(&self.strides)
            .try_fold(self.offset, |all, (&index, &stride)| {
                all.checked_add(index.checked_mul(stride)?)
            });
        let Some(offset) = begin else { return Ok(None) };
        let source = Layout {
            offset,
            strides: &self.strides,
        };
        let copied = strided::copy_box(size, sizes, (&stored, source), (out, layout));
        Ok(copied)
    }

    fn gather(&self, stored: &[u8], out: &mut [u8]) {
        let size = self.dtype.size_in_bits() / 8;
        let source = Layout {
            offset: self.offset,
            strides: &self.strides,
        };
        if let Some(rows) = strided::row_major(&self.shape) {
            let target = Layout {
                offset: 0,
                strides: &rows,
            };
            let copied = strided::copy_box(size, &self.shape, (stored, source), (out, target));
            debug_assert!(copied.is_some(), "{self:?} was checked on construction");
        }
        if self.swaps() {
            let part = self.dtype.component_bytes();
            out.chunks_exact_mut(part).for_each(<[u8]>::reverse);
        }
    }

    pub(crate) fn swaps(&self) -> bool {
        self.storage.big_endian && self.dtype.component_bytes() > 1
    }

    /// Its data as an owner for a tensor library, without a copy where it lies in row-major order.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn to_owner(&self) -> Result<TensorBytes> {
        if let Data::Ready(owner) = &self.storage.data
            && self.is_contiguous()
            && !self.swaps()
        {
            return Ok(TensorBytes::new(Arc::clone(owner), self.range()));
        }
        Ok(self.bytes()?.into_owned().into())
    }
}

/// Zeros, or an error where the memory is not there.
pub(crate) fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    reserve(&mut out, bytes)?;
    out.resize(bytes, 0);
    Ok(out)
}

pub(crate) fn reserve(out: &mut Vec<u8>, bytes: usize) -> Result<()> {
    out.try_reserve_exact(bytes)
        .map_err(|source| Error::OutOfMemory { bytes, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(bytes: usize) -> Arc<Storage> {
        Arc::new(Storage::new((0..bytes as u8).collect::<Vec<u8>>()))
    }

    #[test]
    fn what_lies_in_rows_is_borrowed_and_the_rest_gathered() {
        let storage = storage(8);
        let cut = StoredTensor::strided(Dtype::U8, vec![2, 2], vec![2, 1], 3, Arc::clone(&storage));
        let cut = cut.unwrap();
        assert!(matches!(cut.bytes().unwrap(), Cow::Borrowed([3, 4, 5, 6])));
        let turned = StoredTensor::strided(Dtype::I16, vec![2, 2], vec![1, 2], 0, storage).unwrap();
        assert_eq!(&*turned.bytes().unwrap(), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(&*turned.to_owner().unwrap(), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert!(turned.shares_storage_with(&cut));
        let mut out = vec![9; 3];
        turned.read_into(&mut out).unwrap();
        assert_eq!(out, [0, 1, 4, 5, 2, 3, 6, 7]);
    }

    #[test]
    fn big_endian_numbers_are_turned_part_by_part() {
        let mut storage = Storage::new(vec![0, 1, 2, 3, 4, 5, 6, 7]);
        storage.big_endian = true;
        let storage = Arc::new(storage);
        let pair = StoredTensor::contiguous(Dtype::C64, [1], Arc::clone(&storage)).unwrap();
        assert_eq!(&*pair.bytes().unwrap(), [3, 2, 1, 0, 7, 6, 5, 4]);
        let long = StoredTensor::contiguous(Dtype::I64, [1], storage).unwrap();
        assert_eq!(&*long.to_owner().unwrap(), [7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn views_outside_their_bytes_are_refused() {
        let make = |shape: &[usize], strides: &[usize], offset| {
            StoredTensor::strided(
                Dtype::F32,
                shape.to_vec(),
                strides.to_vec(),
                offset,
                storage(16),
            )
        };
        assert!(make(&[2, 2], &[2, 1], 0).is_ok());
        assert!(make(&[2, 2], &[0, 0], 3).is_ok());
        assert!(make(&[0], &[1], 9).is_ok(), "no element, no place");
        for (shape, strides, offset) in [
            (&[2usize, 2][..], &[2usize, 1][..], 1usize),
            (&[2], &[4], 0),
            (&[2], &[usize::MAX], 0),
            (&[1], &[1], usize::MAX),
        ] {
            let fault = make(shape, strides, offset).unwrap_err();
            assert!(matches!(fault, LayoutFault::OutOfStorage { .. }), "{fault}");
        }
        assert!(matches!(
            make(&[2], &[], 0).unwrap_err(),
            LayoutFault::Dimensions { .. }
        ));
        let huge = make(&[usize::MAX, 2], &[0, 0], 0).unwrap_err();
        assert!(matches!(huge, LayoutFault::SizeOverflow { .. }), "{huge}");
        let expanded = make(&[1 << 40], &[0], 0).unwrap_err();
        assert!(
            matches!(expanded, LayoutFault::Expanded { .. }),
            "{expanded}"
        );
    }
}
