//! Files of `torch.save`: a pickle that describes values, and the bytes of their tensors.
//!
//! Both formats are read: the zip archive (PyTorch 1.6 and later) and the old one before it. The
//! zip archive is written. Whatever a file says, reading it executes nothing: the pickle is read as
//! data, and a name in it that stands for neither a tensor nor a plain value ends the reading with
//! that name ([`PickleFault::Refused`](crate::PickleFault::Refused)).
//!
//! Tensors are views of the mapped file; only deflated records, which `torch.save` does not make,
//! are unpacked when they are read. Opening a file takes memory for its description only, within
//! fixed bounds: 100 MB of pickle, 16 million operations in it, a million records; and no more than
//! a small multiple of the description, however often it repeats itself.
//!
//! Zip directories are read and written by the `rawzip` crate, which tells where the data of an
//! entry lies; the pickle machine is our own, see the source of the module `pickle`.

mod archive;
mod decode;
mod encode;
mod file;
mod known;
mod legacy;
mod numpy;
mod write;

pub(crate) use self::archive::inflate;
pub(crate) use self::decode::Strangers;
pub use self::file::{TorchFile, TorchFormat};
pub(crate) use self::file::{read_value, sniff};
pub(crate) use self::write::write_archive;
pub use self::write::{PendingStorage, TorchWriter, write_torch_file};
