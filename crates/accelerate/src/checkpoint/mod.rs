//! Weights of a module, from safetensors and torch files, and to safetensors files.
//!
//! [`load_weights`] compares the whole file with the whole module before it copies anything, and
//! names everything that does not fit at once. [`save_weights`] writes a file that other tools
//! read; it is whole or absent.

mod dtype;
mod load;
mod report;
mod save;
mod wrappers;

pub use accelerate_formats::{AtomicFile, Metadata, Weights};

pub use self::dtype::{dtype_of, kind_of};
pub use self::load::{LoadOptions, load_weights};
pub use self::report::{LoadReport, Mismatch, TensorType};
pub use self::save::save_weights;

#[cfg(test)]
mod tests;
