//! The bytes of a tensor, and whoever owns them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::BytesOwner;

/// The data of one tensor, and whoever owns it. Cloning it copies no data.
#[derive(Clone)]
pub struct TensorBytes {
    owner: BytesOwner,
    range: Range<usize>,
}

impl TensorBytes {
    /// The bytes `range` of an owner; none where the range leaves it.
    pub(super) fn new(owner: BytesOwner, range: Range<usize>) -> Self {
        Self { owner, range }
    }

    /// Whether the first byte lies at a multiple of `alignment` bytes in memory. An alignment of 0
    /// is never met.
    pub fn is_aligned_to(&self, alignment: usize) -> bool {
        alignment != 0 && self.as_ptr().addr().is_multiple_of(alignment)
    }

    /// A part of these bytes, or `None` where the range leaves them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let begin = self.range.start;
        Some(Self {
            owner: Arc::clone(&self.owner),
            range: begin + range.start..begin + range.end,
        })
    }
}

impl From<Vec<u8>> for TensorBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            range: 0..bytes.len(),
            owner: Arc::new(bytes),
        }
    }
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.owner)
            .as_ref()
            .get(self.range.clone())
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorBytes")
            .field("bytes", &self.len())
            .finish()
    }
}
