//! What can be wrong with a weight file, said so that it can be repaired.

use std::collections::TryReserveError;
use std::io;
use std::path::PathBuf;

use crate::dtype::Dtype;

mod distributed;
mod fault;
mod offload;
mod pickle;
mod torch;
mod wording;
mod zero;

pub use self::distributed::DistributedFault;
pub use self::fault::{HeaderFault, IndexFault, MissingTensor, WriteFault};
pub use self::offload::OffloadFault;
pub use self::pickle::PickleFault;
pub use self::torch::{LayoutFault, TorchFault, TorchWriteFault};
use self::wording::{did_you_mean, quoted};
pub use self::zero::ZeroFault;

/// The result of reading or writing weight files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a weight file cannot be read or written. Always names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is absent or may not be read.
    #[error("cannot open `{}`", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is something at the path, but no regular file.
    #[error("expected a file at `{}`, found a folder, pipe or device", path.display())]
    NotAFile {
        /// Where the file should be.
        path: PathBuf,
    },
    /// The system cannot map the file into memory.
    #[error(
        "cannot map `{}` into memory; copy it to a local disk if it lies on a file system without mapping",
        path.display()
    )]
    Map {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The content is no sound safetensors file.
    #[error("cannot read `{}` as a safetensors file", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: HeaderFault,
    },
    /// The weights hold no tensor of this name.
    #[error("no tensor `{tensor}` in `{}`{}", path.display(), did_you_mean(.nearest.as_deref()))]
    TensorNotFound {
        /// The file, index or folder that was asked.
        path: PathBuf,
        /// The name asked for.
        tensor: String,
        /// A name that differs only by a prefix, where there is one.
        nearest: Option<String>,
    },
    /// The index does not describe a complete set of weights.
    #[error("cannot use the weight index `{}`", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: IndexFault,
    },
    /// A folder holds no weights under a name this crate looks for.
    #[error("no weights in `{}`: looked for {}, found {}", folder.display(), quoted(looked_for), quoted(found))]
    NoWeights {
        /// The folder.
        folder: PathBuf,
        /// The file names tried, in order.
        looked_for: Vec<String>,
        /// What the folder holds instead (the first names, sorted).
        found: Vec<String>,
    },
    /// A folder holds several indexes and none has the standard name.
    #[error("several weight indexes in `{}`: {}; name the one to read", folder.display(), quoted(found))]
    ManyIndexes {
        /// The folder.
        folder: PathBuf,
        /// The names of the indexes.
        found: Vec<String>,
    },
    /// The content is no sound file of `torch.save`, or holds more than tensors and plain values.
    #[error("cannot read `{}` as a file of PyTorch", path.display())]
    Torch {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<TorchFault>,
    },
    /// A value cannot be written in PyTorch's format. Nothing is left of the file.
    #[error("cannot write this value to `{}`", path.display())]
    TorchUnwritable {
        /// The file that was to be written.
        path: PathBuf,
        /// What is wrong with the value.
        #[source]
        fault: TorchWriteFault,
    },
    /// A distributed checkpoint is damaged, or its parts do not fit each other.
    #[error("cannot use the distributed checkpoint in `{}`", folder.display())]
    Distributed {
        /// Its folder.
        folder: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<DistributedFault>,
    },
    /// A checkpoint of DeepSpeed is damaged or incomplete.
    #[error("cannot use the DeepSpeed checkpoint in `{}`", folder.display())]
    Zero {
        /// Its folder.
        folder: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<ZeroFault>,
    },
    /// A folder of offloaded weights is damaged, or cannot hold a weight.
    #[error("cannot use the offload folder `{}`", folder.display())]
    Offload {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        #[source]
        fault: Box<OffloadFault>,
    },
    /// The bytes of a tensor were asked for before they were there.
    #[error(
        "the {bytes} bytes of this tensor are still to be written; only a writer can take them"
    )]
    PendingStorage {
        /// How many bytes there will be.
        bytes: usize,
    },
    /// There is not enough memory to put a tensor in order.
    #[error("not enough memory for {bytes} bytes of a tensor")]
    OutOfMemory {
        /// The size of the tensor.
        bytes: usize,
        /// What the allocator said.
        #[source]
        source: TryReserveError,
    },
    /// The file could not be written. Nothing is left of it; what was there before is unchanged.
    #[error("cannot write `{}`; nothing was changed there", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A tensor could not be written. Nothing is left of the file; what was there before is
    /// unchanged.
    #[error(
        "cannot write `{}`: tensor `{tensor}`, whose data begins at byte {offset}; nothing was changed there",
        path.display()
    )]
    WriteTensor {
        /// The file that was to be written.
        path: PathBuf,
        /// The tensor whose turn it was.
        tensor: String,
        /// Where in the file it was to begin, in bytes from the start.
        offset: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A tensor has a type whose numbers cannot be turned into another.
    #[error(
        "tensor `{tensor}` of type `{dtype}` cannot become `{to}`: its numbers mean something only \
         together with a scale that is stored apart"
    )]
    Cast {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// The type asked for.
        to: Dtype,
    },
    /// A checkpoint holds more than the tensors that were asked for.
    #[error(
        "`{}` holds {} beside its tensors: {}",
        path.display(),
        if values.len() == 1 { "a value".to_owned() } else { format!("{} values", values.len()) },
        quoted(values)
    )]
    NotOnlyTensors {
        /// The checkpoint.
        path: PathBuf,
        /// The names of the values.
        values: Vec<String>,
    },
    /// A checkpoint has no part of this name.
    #[error("`{}` has no part `{part}`; it has {}", path.display(), quoted(found))]
    NoPart {
        /// The checkpoint.
        path: PathBuf,
        /// The part that was asked for.
        part: String,
        /// The parts there are.
        found: Vec<String>,
    },
    /// There is something where a new folder was to be made.
    #[error("there is something in `{}` already", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// There is a link or a mount point where a new folder was to be made.
    #[error("`{}` is a link or a mount point, which no new folder can take the place of", path.display())]
    Fixed {
        /// Where the folder was to be.
        path: PathBuf,
    },
    /// The file is written and in place, but the system did not confirm that its name would
    /// survive a power loss.
    #[error("wrote `{}`, but cannot flush its folder to disk", path.display())]
    FlushFolder {
        /// The file that was written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The tensors given make no sound file. Nothing is left of it.
    #[error("cannot write these tensors to `{}`", path.display())]
    Unwritable {
        /// The file that was to be written.
        path: PathBuf,
        /// What is wrong with the tensors.
        #[source]
        fault: WriteFault,
    },
}

impl Error {
    /// The same, naming the tensor whose data was to be written at `offset`.
    pub(crate) fn of_tensor(self, tensor: &str, offset: u64) -> Self {
        match self {
            Self::Write { path, source } => Self::WriteTensor {
                path,
                tensor: tensor.to_owned(),
                offset,
                source,
            },
            other => other,
        }
    }

    /// The same, for a file that was to be renamed from the folder `from` to the folder `to`.
    pub(crate) fn moved(mut self, from: &std::path::Path, to: &std::path::Path) -> Self {
        if let Self::Write { path, .. }
        | Self::WriteTensor { path, .. }
        | Self::FlushFolder { path, .. } = &mut self
            && let Ok(inside) = path.strip_prefix(from)
        {
            *path = to.join(inside);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_small() {
        assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
    }
}
