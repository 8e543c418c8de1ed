//! What can be wrong with a folder of PyTorch's distributed checkpoints.

use super::wording::quoted;
use super::{PickleFault, TorchFault};
use crate::dtype::Dtype;

/// Why a distributed checkpoint cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DistributedFault {
    /// The folder has no description.
    #[error("there is no `.metadata` in it{}", inner_hint(.inner))]
    NoMetadata {
        /// Folders in it that have one.
        inner: Vec<String>,
    },
    /// The description cannot be read.
    #[error("its `.metadata` cannot be read")]
    Metadata {
        /// What is wrong with it.
        #[source]
        source: PickleFault,
    },
    /// A part of the description is missing or of another kind.
    #[error("its `.metadata` lacks {what}; it is damaged or from an unknown version")]
    Lacks {
        /// The part.
        what: &'static str,
    },
    /// Parts were packed or encrypted on the way to disk.
    #[error(
        "`{name}` went through a transformation ({found}) when it was written, which is not read"
    )]
    Transformed {
        /// The tensor or value.
        name: String,
        /// What is said about the transformation.
        found: &'static str,
    },
    /// A file name that could lead out of the folder.
    #[error("a part lies in `{file}`: expected a plain file name in the same folder")]
    FileName {
        /// The name.
        file: String,
    },
    /// Nothing says where a part lies.
    #[error("its `.metadata` does not say where the part of `{name}` at {offsets:?} lies")]
    NoPlace {
        /// The tensor or value.
        name: String,
        /// The first element of the part.
        offsets: Vec<usize>,
    },
    /// A part reaches out of its tensor, or the numbers of dimensions differ.
    #[error(
        "a part of `{tensor}` with offsets {offsets:?} and sizes {sizes:?} does not fit its shape {shape:?}"
    )]
    ChunkOutside {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The first element of the part.
        offsets: Vec<usize>,
        /// The lengths of the part.
        sizes: Vec<usize>,
    },
    /// The parts of a tensor do not cover it.
    #[error(
        "the parts of `{tensor}` hold {found} of {expected} elements: a rank's part is missing"
    )]
    Gap {
        /// The tensor.
        tensor: String,
        /// How many elements there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// Two parts of a tensor cover one element.
    #[error("two parts of `{tensor}` overlap")]
    Overlap {
        /// The tensor.
        tensor: String,
    },
    /// Files that the description names are not there.
    #[error(
        "{} of its {expected} files {} missing: {}; copy all files of all ranks",
        files.len(),
        if files.len() == 1 { "is" } else { "are" },
        quoted(files)
    )]
    FilesMissing {
        /// Their names.
        files: Vec<String>,
        /// How many files there should be.
        expected: usize,
    },
    /// A part ends past the end of its file.
    #[error(
        "`{file}` has {file_bytes} bytes, but a part of `{name}` is {length} bytes at {offset}; copy the file again"
    )]
    PastEnd {
        /// The tensor or value.
        name: String,
        /// The file.
        file: String,
        /// Where the part begins.
        offset: u64,
        /// The length of the part.
        length: u64,
        /// The length of the file.
        file_bytes: usize,
    },
    /// A part is no sound stream of `torch.save`.
    #[error("the part of `{name}` in `{file}` cannot be read")]
    Part {
        /// The tensor or value.
        name: String,
        /// The file.
        file: String,
        /// What is wrong with it.
        #[source]
        source: Box<TorchFault>,
    },
    /// A part holds something other than the description says.
    #[error("the part of `{tensor}` in `{file}`: expected `{dtype}` {sizes:?}, found {found}")]
    WrongPart {
        /// The tensor.
        tensor: String,
        /// The file.
        file: String,
        /// The type it should have.
        dtype: Dtype,
        /// The lengths it should have.
        sizes: Vec<usize>,
        /// What is there.
        found: String,
    },
    /// Names that would make one value both a dict and something else.
    #[error("`{name}` cannot be put back where it was: another name is in its way")]
    Nesting {
        /// The name.
        name: String,
    },
    /// Something lay deeper in dicts and lists than values may.
    #[error("`{name}` lay {found} dicts and lists deep: expected at most {limit}")]
    TooDeep {
        /// The name.
        name: String,
        /// How deep.
        found: usize,
        /// How deep values may be.
        limit: usize,
    },
    /// Two ranks wrote one thing, or described it differently.
    #[error("`{name}` was written twice, or with different types or shapes")]
    Conflict {
        /// The tensor or value.
        name: String,
    },
    /// The data of a part has another length than its type and sizes need.
    #[error("the part of `{tensor}` has {found_bytes} bytes: expected {expected_bytes}")]
    WrongSize {
        /// The tensor.
        tensor: String,
        /// What type and sizes need.
        expected_bytes: usize,
        /// What was given.
        found_bytes: usize,
    },
}

fn inner_hint(inner: &[String]) -> String {
    if inner.is_empty() {
        return "; `.distcp` files alone cannot be read".to_owned();
    }
    format!("; give one of the folders in it: {}", quoted(inner))
}
