//! What can be wrong with a weight file, said so that it can be repaired.

use std::collections::TryReserveError;
use std::io;
use std::path::PathBuf;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_small() {
        assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
    }
}
