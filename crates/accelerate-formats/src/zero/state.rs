//! What the optimizer of each rank keeps beside the weights.

use super::{Piece, Source, ZeroCheckpoint, ZeroTensor};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::safetensors::nearest;
use crate::tensor::{Pieces, StoredTensor};
use crate::value::{Dict, Value};

/// What counts steps and belongs to no number of a parameter.
const STEP: &str = "step";

/// One thing that an optimizer keeps of a parameter.
#[derive(Debug, Clone, Copy)]
pub enum ZeroState<'z> {
    /// One value, as the first rank has it.
    Single(&'z Value),
    /// A number of this type for each number of the parameter, which
    /// [`state_pieces`](ZeroCheckpoint::state_pieces) hands out.
    Numbers(Dtype),
}

impl ZeroCheckpoint {
    /// The names of the parameters of each group of the optimizer, in its order.
    pub fn groups(&self) -> &[Vec<String>] {
        &self.groups
    }

    /// The state of the optimizer as the first rank has it: the settings of its groups, and flat
    /// tensors in the place of the parameters' own.
    pub fn optimizer(&self) -> Option<&Value> {
        self.states.first()
    }

    /// A buffer as it is in the file; [`pieces`](Self::pieces) has it in float32.
    pub fn buffer(&self, name: &str) -> Option<&StoredTensor> {
        match &self.find(name).ok()?.source {
            Source::Cast(stored) => Some(stored),
            _ => None,
        }
    }

    /// What the optimizer keeps of a trained parameter, by its kind; nothing before the first step, and
    /// of a parameter that is not trained or has no numbers.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`].
    pub fn state_of(&self, name: &str) -> Result<Vec<(&str, ZeroState<'_>)>> {
        let Source::Pieces(pieces) = &self.find(name)?.source else {
            return Ok(Vec::new());
        };
        let state = pieces.first().and_then(|piece| self.state_at(*piece));
        let kinds = state.into_iter().flat_map(Dict::iter);
        let kinds = kinds.filter_map(|(kind, value)| {
            let kind = kind.as_str()?;
            let flat = value.as_tensor().filter(|_| kind != STEP);
            let state = match flat.filter(|flat| !flat.shape().is_empty()) {
                Some(flat) => ZeroState::Numbers(flat.dtype()),
                None => ZeroState::Single(value),
            };
            Some((kind, state))
        });
        Ok(kinds.collect())
    }

    /// What the optimizer keeps of each number of a parameter, in row-major order, little-endian, piece
    /// after piece.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`] if there is none of this kind, or a rank has less of it than of the
    /// weights.
    pub fn state_pieces<'z>(&'z self, name: &str, kind: &'z str) -> Result<Pieces<'z>> {
        let ZeroTensor { header, source } = self.find(name)?;
        let Source::Pieces(pieces) = source else {
            return Err(self.lost(&header.name, kind));
        };
        let pieces = pieces.iter().map(move |&piece| {
            let flat = self.state_at(piece).and_then(|state| state.get(kind));
            let lost = || self.lost(&header.name, kind);
            let flat = flat.and_then(Value::as_tensor).ok_or_else(lost)?;
            let size = flat.dtype().size_in_bits() / 8;
            let range = piece.begin * size..(piece.begin + piece.length) * size;
            flat.to_owner()?.slice(range).ok_or_else(lost)
        });
        Ok(Box::new(pieces))
    }

    /// What a rank's optimizer keeps of one of its flat tensors.
    fn state_at(&self, piece: Piece) -> Option<&Dict> {
        match self.states.get(piece.rank)? {
            // For loading with other numbers of ranks.
            Value::List(all) => all.get(piece.tensor)?.as_dict(),
            whole => {
                let all = whole.get("state")?.as_dict()?;
                let mut all = all.iter();
                let own = all.find(|(number, _)| number.as_usize() == Some(piece.tensor))?;
                own.1.as_dict()
            }
        }
    }

    fn lost(&self, name: &str, kind: &str) -> Error {
        let known = self.tensors().map(|known| known.name.as_str());
        Error::TensorNotFound {
            path: self.folder.clone(),
            tensor: format!("{name}.{kind}"),
            nearest: nearest(known, name),
        }
    }
}
