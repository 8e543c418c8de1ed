//! The tensors of another source in another type.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::TensorSource;
use crate::cast::{FloatType, cast};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::safetensors::TensorHeader;
use crate::tensor::{Pieces, TensorBytes};

/// How many bytes are turned at a time.
const TURNED_BYTES: usize = 4 << 20;

/// The tensors of another source, floats in another type. Whole numbers, truth values and complex
/// numbers stay as they are.
///
/// # Source
/// `Module.to(dtype)`. Differs: each number is rounded once, also from float64, where PyTorch rounds
/// to float32 first; and 8-bit floats, which PyTorch turns into numbers without their scale, are
/// refused.
#[derive(Debug)]
pub struct CastSource<'s> {
    source: &'s dyn TensorSource,
    to: FloatType,
    /// The type of each tensor that is turned.
    turned: BTreeMap<String, FloatType>,
    overflows: Mutex<BTreeMap<String, u64>>,
}

impl<'s> CastSource<'s> {
    /// The tensors of `source`, with floats of type `to`.
    ///
    /// # Errors
    /// [`Error::Cast`] if a tensor has floats of 8 bits or less.
    pub fn new(source: &'s dyn TensorSource, to: FloatType) -> Result<Self> {
        let mut turned = BTreeMap::new();
        for header in source.headers() {
            if let Some(from) = FloatType::of(header.dtype) {
                turned.insert(header.name, from);
            } else if is_scaled(header.dtype) {
                return Err(Error::Cast {
                    tensor: header.name,
                    dtype: header.dtype,
                    to: to.dtype(),
                });
            }
        }
        Ok(Self {
            source,
            to,
            turned,
            overflows: Mutex::default(),
        })
    }

    /// How many finite numbers became infinite in each tensor that was read, by name.
    pub fn overflows(&self) -> BTreeMap<String, u64> {
        self.counts().clone()
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u64>> {
        self.overflows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, name: &str, from: FloatType, piece: &TensorBytes, begin: usize) -> TensorBytes {
        let end = piece.len().min(begin + TURNED_BYTES);
        let bytes = piece.get(begin..end).unwrap_or_default();
        let mut out = Vec::with_capacity(
            bytes.len() / from.dtype().size_in_bits() * self.to.dtype().size_in_bits(),
        );
        let lost = cast(from, self.to, bytes, &mut out);
        if lost > 0 {
            *self.counts().entry(name.to_owned()).or_default() += lost;
        }
        out.into()
    }
}

fn is_scaled(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::F4
            | Dtype::F6E2m3
            | Dtype::F6E3m2
            | Dtype::F8E5m2
            | Dtype::F8E4m3
            | Dtype::F8E8m0
            | Dtype::F8E4m3Fnuz
            | Dtype::F8E5m2Fnuz
    )
}

impl TensorSource for CastSource<'_> {
    fn headers(&self) -> Vec<TensorHeader> {
        let mut headers = self.source.headers();
        for header in &mut headers {
            if self.turned.contains_key(&header.name) {
                header.dtype = self.to.dtype();
            }
        }
        headers
    }

    fn aliases(&self) -> Vec<(String, String)> {
        self.source.aliases()
    }

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        let pieces = self.source.pieces(name)?;
        let from = match self.turned.get(name) {
            Some(&from) if from != self.to => from,
            _ => return Ok(pieces),
        };
        let name = name.to_owned();
        let turned = pieces.flat_map(move |piece| -> Pieces<'_> {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => return Box::new(std::iter::once(Err(error))),
            };
            let name = name.clone();
            let begins = (0..piece.len()).step_by(TURNED_BYTES);
            Box::new(begins.map(move |begin| Ok(self.turn(&name, from, &piece, begin))))
        });
        Ok(Box::new(turned))
    }
}
