//! The ways in which the content of a file can be wrong, each with its remedy.

use std::str::Utf8Error;

use safetensors::SafeTensorError;

use super::wording::{count, listed, next_of, quoted};
use crate::dtype::{Dtype, UnknownDtype};

/// What is wrong with the content of a safetensors file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The file ends before the header begins.
    #[error("expected at least 8 bytes, found {found_bytes}; download or copy the file again")]
    TooShort {
        /// The length of the file.
        found_bytes: usize,
    },
    /// The file stands for one kept in git's large file storage.
    #[error("the file is only a git-lfs pointer; run `git lfs pull` to fetch the weights")]
    GitLfsPointer,
    /// The file is a zip archive, as PyTorch writes them.
    #[error(
        "the file is a zip archive, as `torch.save` writes; rename it to `.bin` to have it read as one"
    )]
    ZipArchive,
    /// The header is longer than the format allows.
    #[error(
        "expected a header of at most {limit_bytes} bytes, found {header_bytes}; \
         the file is damaged or no safetensors file"
    )]
    HeaderTooLong {
        /// The length the file claims.
        header_bytes: u64,
        /// The longest length allowed.
        limit_bytes: u64,
    },
    /// The file ends within its header.
    #[error(
        "the header needs {header_bytes} bytes, but the file has only {file_bytes}; download or copy it again"
    )]
    HeaderPastEnd {
        /// The length the file claims for its header.
        header_bytes: u64,
        /// The length of the file.
        file_bytes: u64,
    },
    /// The header is not text.
    #[error("the header is not UTF-8; the file is damaged or no safetensors file")]
    NotUtf8 {
        /// Where the text breaks.
        #[source]
        source: Utf8Error,
    },
    /// The header is not a JSON object.
    #[error("the header is not a JSON object; the file is damaged or no safetensors file")]
    NotJson {
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// `__metadata__` is not a map from text to text.
    #[error("`__metadata__` is not a map from text to text; write the file again with text values")]
    BadMetadata {
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// A key stands twice in the header, so that it is unclear which one holds.
    #[error("`{name}` stands twice in the header; write the file again with names that differ")]
    DuplicateName {
        /// The name of the tensor or the metadata key.
        name: String,
    },
    /// An entry lacks a field or has one of the wrong kind.
    #[error("the entry of tensor `{tensor}` is malformed; the file is damaged")]
    BadEntry {
        /// The tensor.
        tensor: String,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// A tensor has a data type this version does not know.
    #[error("cannot read tensor `{tensor}`; convert it with the program that wrote it")]
    UnknownDtype {
        /// The tensor.
        tensor: String,
        /// The type and the known ones.
        #[source]
        source: UnknownDtype,
    },
    /// The size of a tensor does not fit the address space.
    #[error(
        "tensor `{tensor}` of type `{dtype}` and shape {shape:?} is too large for any memory; the file is damaged"
    )]
    SizeOverflow {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A tensor of packed elements ends within a byte.
    #[error(
        "tensor `{tensor}` of type `{dtype}` and shape {shape:?} does not fill whole bytes; the file is damaged"
    )]
    PartialByte {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A tensor has more or fewer bytes than its type and shape need.
    #[error(
        "tensor `{tensor}` of type `{dtype}` and shape {shape:?}: expected {expected_bytes} bytes, \
         found {found_bytes}; the file is damaged"
    )]
    WrongSize {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// What type and shape need.
        expected_bytes: usize,
        /// What the offsets give.
        found_bytes: usize,
    },
    /// A tensor ends before it begins.
    #[error(
        "tensor `{tensor}` ends at byte {end}, before it begins at byte {begin}; the file is damaged"
    )]
    EndBeforeBegin {
        /// The tensor.
        tensor: String,
        /// Its first byte, counted from the start of the data.
        begin: usize,
        /// The byte after its last one.
        end: usize,
    },
    /// Bytes belong to no tensor.
    #[error(
        "tensor `{tensor}`: expected its data at byte {expected}, found {found}: a hole; the file is damaged"
    )]
    Hole {
        /// The tensor after the hole.
        tensor: String,
        /// Where the data before it ends.
        expected: usize,
        /// Where it begins.
        found: usize,
    },
    /// Bytes belong to two tensors.
    #[error(
        "tensor `{tensor}` begins at byte {begin}, but `{previous}` before it ends at byte {previous_end}: \
         they overlap; the file is damaged"
    )]
    Overlap {
        /// The second tensor.
        tensor: String,
        /// Its first byte, counted from the start of the data.
        begin: usize,
        /// The first tensor.
        previous: String,
        /// The byte after the first tensor.
        previous_end: usize,
    },
    /// The file ends before its data does.
    #[error(
        "expected {expected_bytes} bytes of data, found {found_bytes}; download or copy the file again"
    )]
    Truncated {
        /// What the header promises.
        expected_bytes: usize,
        /// What follows the header.
        found_bytes: usize,
    },
    /// The file goes on after its data.
    #[error(
        "expected {expected_bytes} bytes of data, found {found_bytes}: bytes that belong to no tensor follow"
    )]
    TrailingBytes {
        /// What the header promises.
        expected_bytes: usize,
        /// What follows the header.
        found_bytes: usize,
    },
    /// The `safetensors` crate refuses the header for a reason this crate cannot name better.
    #[error("the header is refused; the file is damaged")]
    Refused {
        /// What the crate said.
        #[source]
        source: SafeTensorError,
    },
}

/// What is wrong with the index of sharded weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexFault {
    /// The index is longer than this crate reads.
    #[error("expected at most {limit_bytes} bytes, found {found_bytes}; this is no weight index")]
    TooLong {
        /// The length of the file.
        found_bytes: u64,
        /// The longest length read.
        limit_bytes: u64,
    },
    /// The index is not a JSON object of the right form.
    #[error("expected a JSON object with `weight_map`, a map from tensor name to file name")]
    NotAnIndex {
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// The index names no tensor.
    #[error(
        "the index names no tensor; write it again, or delete it if the weights are in one file"
    )]
    Empty,
    /// A tensor stands twice in the index.
    #[error("tensor `{tensor}` stands twice in the index; keep one")]
    DuplicateName {
        /// The tensor.
        tensor: String,
    },
    /// A file name that could lead out of the index's folder.
    #[error(
        "tensor `{tensor}` is in `{shard}`: expected a plain file name in the folder of the index"
    )]
    ShardName {
        /// The tensor.
        tensor: String,
        /// The name as it stands in the index.
        shard: String,
    },
    /// Files that the index names are not there.
    #[error(
        "missing beside the index: {}; download or copy them into the same folder",
        quoted(shards)
    )]
    ShardsMissing {
        /// The files, sorted.
        shards: Vec<String>,
    },
    /// Tensors that the index names are not in the files it names for them.
    #[error("{} not in the file the index names: {}; download the weights again", count(missing.len()), listed(missing))]
    TensorsMissing {
        /// All of them, sorted by name.
        missing: Vec<MissingTensor>,
    },
    /// A tensor the index does not name is in two files.
    #[error(
        "tensor `{tensor}` is in both `{first}` and `{second}`, and the index names neither for it; add it there"
    )]
    Ambiguous {
        /// The tensor.
        tensor: String,
        /// One file.
        first: String,
        /// The other file.
        second: String,
    },
}

/// A tensor that is not where the index says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTensor {
    /// The name of the tensor.
    pub tensor: String,
    /// The file it should be in.
    pub shard: String,
}

/// What is wrong with tensors that were to be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteFault {
    /// Two tensors have one name.
    #[error("two tensors are named `{tensor}`; rename one")]
    DuplicateName {
        /// The name.
        tensor: String,
    },
    /// The format keeps this name for itself.
    #[error("a tensor may not be named `{tensor}`: the format uses this name; rename it")]
    ReservedName {
        /// The name.
        tensor: String,
    },
    /// The format has no such type.
    #[error(
        "tensor `{tensor}` is of type `{dtype}`, which safetensors files do not have; convert it, or write a torch file"
    )]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
    },
    /// The size of a tensor, or of all together, does not fit the address space.
    #[error(
        "with tensor `{tensor}` of type `{dtype}` and shape {shape:?} the file is too large for any memory"
    )]
    SizeOverflow {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A tensor of packed elements ends within a byte.
    #[error(
        "tensor `{tensor}` of type `{dtype}` and shape {shape:?} does not fill whole bytes; pad its last dimension"
    )]
    PartialByte {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The data of a tensor has another length than its type and shape need.
    #[error(
        "tensor `{tensor}` of type `{dtype}` and shape {shape:?}: expected {expected_bytes} bytes, found {found_bytes}; \
         give the whole tensor, contiguous"
    )]
    WrongSize {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// What type and shape need.
        expected_bytes: usize,
        /// What was given.
        found_bytes: usize,
    },
    /// There are too many tensors, or their names are too long, for one file.
    #[error(
        "expected a header of at most {limit_bytes} bytes, found {header_bytes}; split the tensors over several files"
    )]
    HeaderTooLong {
        /// The length of the header.
        header_bytes: u64,
        /// The longest length allowed.
        limit_bytes: u64,
    },
    /// The header cannot be written as JSON.
    #[error("the header cannot be written as JSON")]
    Header {
        /// What the serializer said.
        #[source]
        source: serde_json::Error,
    },
    /// A tensor came before its turn.
    #[error("expected {}, found tensor `{found}`; write them in the order the writer asks for", next_of(.expected.as_deref()))]
    OutOfOrder {
        /// The tensor whose turn it is, or none where all are written.
        expected: Option<String>,
        /// The tensor that came.
        found: String,
    },
    /// The file was finished before all tensors were written.
    #[error("{} still to be written, first `{next}`", count(*.missing))]
    Unfinished {
        /// How many tensors are missing.
        missing: usize,
        /// The first of them.
        next: String,
    },
    /// An earlier write failed and the file was given up.
    #[error("an earlier write failed and the file was given up; begin again with a new writer")]
    GivenUp,
}
