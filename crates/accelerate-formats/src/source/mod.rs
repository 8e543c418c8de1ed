//! Anything that has tensors by name, whatever kind of checkpoint it is.

use std::fmt;

use crate::error::Result;
use crate::safetensors::TensorHeader;
use crate::tensor::{Pieces, reserve};

mod cast;
mod distributed_part;
mod tied;

pub use self::cast::CastSource;
pub use self::distributed_part::DistributedPart;

/// Something that has tensors by name.
pub trait TensorSource: fmt::Debug {
    /// All tensors that are stored, each once.
    fn headers(&self) -> Vec<TensorHeader>;

    /// Second names of tied tensors, each with a name in [`headers`](Self::headers).
    fn aliases(&self) -> Vec<(String, String)>;

    /// The data of a tensor, piece after piece, so that it need not be in memory as a whole.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot be read.
    fn pieces(&self, name: &str) -> Result<Pieces<'_>>;

    /// Puts a tensor in row-major order, little-endian, into `out`, in place of what it held.
    ///
    /// # Errors
    /// As [`pieces`](Self::pieces).
    fn read_into(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        for piece in self.pieces(name)? {
            let piece = piece?;
            reserve(out, piece.len())?;
            out.extend_from_slice(&piece);
        }
        Ok(())
    }
}

impl<S: TensorSource + ?Sized> TensorSource for &S {
    fn headers(&self) -> Vec<TensorHeader> {
        (**self).headers()
    }

    fn aliases(&self) -> Vec<(String, String)> {
        (**self).aliases()
    }

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        (**self).pieces(name)
    }
}
