//! Checkpoints of DeepSpeed's ZeRO, stages 1 to 3: full-precision weights from the partitions of all
//! ranks.
//!
//! The optimizer of each rank holds a part of the float32 weights. Stages 1 and 2 cut the flat vector
//! of each parameter group; stage 3 cuts every parameter. [`ZeroCheckpoint`] knows from which ranks'
//! files the pieces of a parameter come and puts one together at a time, so that no more than one
//! parameter is in memory.
//!
//! DeepSpeed's own objects in these files are kept as opaque values and never executed.
//!
//! [`ModelStates`] and [`OptimizerStates`] are what such files hold, to be written; [`ZeroCut`] knows
//! which numbers of the parameters belong to which rank.
//!
//! # Source
//! `zero_to_fp32.py`. Buffers become float32, frozen parameters keep their type, as there. Differs: a
//! tag folder may be given itself; the files of stage 1 do not list frozen parameters, which are then
//! taken from the module's own copy and not left out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cast::to_f32;
use crate::error::{Error, Result, ZeroFault};
use crate::safetensors::{TensorHeader, nearest};
use crate::tensor::{Pieces, StoredTensor, TensorBytes};
use crate::value::Value;

mod build;
mod files;
mod partition;
mod state;
mod states;

pub(crate) use self::files::is_zero;
pub use self::partition::{ZeroCut, ZeroPartition, ZeroRun, zero_share};
pub use self::state::ZeroState;
pub use self::states::{FrozenPart, ModelStates, OptimizerStates};

type Fallible<T> = std::result::Result<T, ZeroFault>;

/// A folder that DeepSpeed wrote, with every parameter found.
#[derive(Debug)]
pub struct ZeroCheckpoint {
    folder: PathBuf,
    files: Vec<PathBuf>,
    stage: u8,
    world_size: usize,
    /// The flat float32 tensors of each rank.
    flat: Vec<Vec<StoredTensor>>,
    /// What the optimizer of each rank says besides them.
    states: Vec<Value>,
    /// The names of the parameters of each group.
    groups: Vec<Vec<String>>,
    tensors: Vec<ZeroTensor>,
    by_name: HashMap<String, usize>,
    aliases: Vec<(String, String)>,
}

#[derive(Debug)]
struct ZeroTensor {
    header: TensorHeader,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A tensor that becomes float32.
    Cast(StoredTensor),
    /// Tensors one after another, cut to the size of the whole.
    Joined(Vec<StoredTensor>),
    /// Pieces of the flat tensors.
    Pieces(Vec<Piece>),
}

/// A run of numbers in a flat tensor.
#[derive(Debug, Clone, Copy)]
struct Piece {
    rank: usize,
    tensor: usize,
    begin: usize,
    length: usize,
}

impl ZeroCheckpoint {
    /// Reads the descriptions in a folder of DeepSpeed's.
    ///
    /// `tag` names the folder inside; without it, the file `latest` does, or `folder` holds the
    /// files itself.
    ///
    /// # Errors
    /// [`Error::Zero`] with what is missing or does not fit.
    pub fn open(folder: impl AsRef<Path>, tag: Option<&str>) -> Result<Self> {
        let folder = folder.as_ref();
        let tagged = files::tagged(folder, tag)?;
        let (models, optimizers) = files::read(&tagged)?;
        build::build(&tagged, &models, &optimizers).map_err(|fault| refused(&tagged, fault))
    }

    /// The folder with the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files in it that were read: those with the model's states, then those with the
    /// optimizer's, in the order of the ranks.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The stage of ZeRO: 1, 2 or 3.
    pub fn stage(&self) -> u8 {
        self.stage
    }

    /// How many ranks wrote it.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// All buffers, frozen parameters and parameters, in this order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorHeader> {
        self.tensors.iter().map(|tensor| &tensor.header)
    }

    /// A tensor's type and shape. A second name will do.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`].
    pub fn tensor(&self, name: &str) -> Result<&TensorHeader> {
        Ok(&self.find(name)?.header)
    }

    /// Second names of tied parameters, each with the name its parameter has in
    /// [`tensors`](Self::tensors).
    pub fn aliases(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.aliases
            .iter()
            .map(|(alias, owner)| (alias.as_str(), owner.as_str()))
    }

    /// The data of a tensor in row-major order, little-endian, piece after piece, mostly where it is
    /// mapped. A second name will do.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`], [`Error::OutOfMemory`].
    pub fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        let tensor = self.find(name)?;
        Ok(match &tensor.source {
            Source::Cast(stored) => {
                let mut out = Vec::new();
                // Types without a cast were refused on opening.
                let _known = to_f32(stored.dtype(), &stored.bytes()?, &mut out);
                Box::new(std::iter::once(Ok(TensorBytes::from(out))))
            }
            Source::Joined(parts) => {
                let header = &tensor.header;
                let mut missing = header.dtype.bits_of(&header.shape).unwrap_or(0) / 8;
                let parts = parts.iter().map(move |part| {
                    let bytes = part.to_owner()?;
                    // The last ranks' parts end in padding.
                    let taken = bytes.len().min(missing);
                    missing -= taken;
                    Ok(bytes.slice(0..taken).unwrap_or(bytes))
                });
                Box::new(parts)
            }
            Source::Pieces(pieces) => Box::new(pieces.iter().map(|piece| self.piece(*piece))),
        })
    }

    fn find(&self, name: &str) -> Result<&ZeroTensor> {
        let alias = self.aliases.iter().find(|(alias, _)| alias == name);
        let owner = alias.map_or(name, |(_, owner)| owner);
        let place = self.by_name.get(owner);
        let tensor = place.and_then(|&place| self.tensors.get(place));
        tensor.ok_or_else(|| Error::TensorNotFound {
            path: self.folder.clone(),
            tensor: name.to_owned(),
            nearest: nearest(self.tensors().map(|known| known.name.as_str()), name),
        })
    }

    fn piece(&self, piece: Piece) -> Result<TensorBytes> {
        let rank = self.flat.get(piece.rank);
        let flat = rank.and_then(|rank| rank.get(piece.tensor));
        let lost = || Error::TensorNotFound {
            path: self.folder.clone(),
            tensor: format!("flat tensor {} of rank {}", piece.tensor, piece.rank),
            nearest: None,
        };
        let bytes = flat.ok_or_else(lost)?.to_owner()?;
        let begin = piece.begin * size_of::<f32>();
        // Checked when the pieces were cut.
        bytes
            .slice(begin..begin + piece.length * size_of::<f32>())
            .ok_or_else(lost)
    }
}

fn refused(folder: &Path, fault: ZeroFault) -> Error {
    Error::Zero {
        folder: folder.to_owned(),
        fault: Box::new(fault),
    }
}
