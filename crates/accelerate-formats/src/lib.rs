//! Files that hold model weights, read and written without a tensor library.
//!
//! Data flows through the modules in this order:
//!
//! | module | room for |
//! | --- | --- |
//! | [`dtype`] | element types, as the files spell them |
//! | [`mmap`] | files as memory: the one place with unsafe code |
//! | [`tensor`] | one tensor as it lies in a file: strides, and the bytes it looks at |
//! | [`value`] | plain Python values around tensors |
//! | [`safetensors`] | one safetensors file: reading and writing |
//! | [`torch`] | one file of `torch.save`: reading and writing |
//! | [`folder`] | the names in a folder |
//! | [`index`] | which of several files holds which tensor |
//! | [`weights`] | a file, an index or a folder behind one interface |
//! | [`distributed`] | folders of `torch.distributed.checkpoint`: reading any box, writing |
//! | [`zero`] | checkpoints of DeepSpeed: weights from the partitions of all ranks |
//! | [`source`] | anything that has tensors by name; the same in another type |
//! | [`checkpoint`] | what kind of checkpoint a path holds, and any kind as a source |
//! | [`compare`] | how far two tensors are apart |
//! | [`sharded`] | weights in several files of limited size: writing |
//! | [`offload`] | folders of offloaded weights |
//! | [`manifest`] | what the folder of a saved training holds, with sizes and hashes |
//! | [`step_records`] | what a training did, step by step, for comparing |
//! | [`atomic_file`], [`atomic_folder`] | files and folders that are whole or absent |
//!
//! Nothing is copied on the way in: a file is mapped into memory and a tensor is a range of
//! that mapping. [`MappedBytes`] keeps the mapping alive, so that a tensor library can use the
//! bytes where they lie.
//!
//! Every file from outside is treated as hostile: its header is checked in full before the
//! first tensor is handed out, and a fault is an [`Error`] with the path, the tensor and what
//! to do about it. Pickles are read as data: nothing in them is ever executed.
//!
//! ```
//! use accelerate_formats::{Dtype, Metadata, TensorData, Weights, write_file};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("model.safetensors");
//! let bias = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
//! write_file(&path, [TensorData::new("bias", Dtype::F32, &[2], &bias)], &Metadata::pytorch())?;
//!
//! let weights = Weights::open(folder.path())?;
//! let tensor = weights.get("bias")?;
//! assert_eq!((tensor.dtype(), tensor.shape()), (Dtype::F32, &[2][..]));
//! assert_eq!(*tensor.bytes()?, *bias);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod atomic_file;
pub mod atomic_folder;
mod boxes;
mod cast;
pub mod checkpoint;
pub mod compare;
pub mod distributed;
pub mod dtype;
mod error;
pub mod folder;
pub mod index;
mod json_object;
pub mod manifest;
pub mod mmap;
pub mod offload;
mod pickle;
pub mod safetensors;
pub mod sharded;
pub mod source;
pub mod step_records;
mod strided;
pub mod tensor;
pub mod torch;
pub mod value;
pub mod weights;
pub mod zero;

pub use crate::atomic_file::{AtomicFile, SealedFile};
pub use crate::atomic_folder::AtomicFolder;
pub use crate::cast::FloatType;
pub use crate::checkpoint::{Checkpoint, CheckpointKind, OpenOptions};
pub use crate::distributed::{DistributedCheckpoint, DistributedWriter, write_distributed};
pub use crate::dtype::{Dtype, UnknownDtype};
pub use crate::error::{
    DistributedFault, Error, HeaderFault, IndexFault, LayoutFault, MissingTensor, OffloadFault,
    PickleFault, Result, TorchFault, TorchWriteFault, WriteFault, ZeroFault,
};
pub use crate::index::ShardIndex;
pub use crate::mmap::{MappedBytes, MappedFile};
pub use crate::offload::{OffloadFolder, OffloadWriter};
pub use crate::safetensors::{
    Metadata, SafetensorsFile, SafetensorsWriter, TensorData, TensorHeader, TensorSlice, write_file,
};
pub use crate::sharded::{
    ShardFormat, ShardSize, ShardedOptions, ShardedWriter, write_sharded, write_sharded_with,
    write_weight_file,
};
pub use crate::source::{CastSource, DistributedPart, TensorSource};
pub use crate::tensor::{Look, Pieces, Storage, StoredTensor, TensorBytes};
pub use crate::torch::{TorchFile, TorchFormat, TorchWriter, write_torch_file};
pub use crate::value::{Dict, Value};
pub use crate::weights::{WeightFile, WeightTensor, Weights};
pub use crate::zero::ZeroCheckpoint;
