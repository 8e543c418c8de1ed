//! Numbers that lie on disk while nobody computes with them.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `folder` | the folder of a rank, and which files are under which tensors |
//! | `traffic` | the threads that read, write and forget beside the training |
//!
//! Tensors on disk are tensors over mapped files ([`accelerate_torch::scratch`]): what computes with
//! them, saves or loads them knows nothing of it. What is here decides how much of them is in memory
//! at one time: parts that are needed soon are read by one thread while the part before is computed
//! with, and parts that were changed are written and dropped by another. That one is waited for where
//! it is behind, so memory holds a bounded number of parts also where the disk is slow.

mod folder;
mod traffic;

pub use folder::DiskFolder;
