//! What can be wrong with a file of `torch.save`, and with a tensor in one.

use std::io;

use super::PickleFault;
use crate::dtype::Dtype;

/// Why a tensor does not fit the bytes it looks at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutFault {
    /// The tensor reaches past the end of its bytes.
    #[error(
        "a tensor of type `{dtype}`, shape {shape:?}, strides {strides:?} and offset {offset} does not fit \
         its {storage_bytes} bytes"
    )]
    OutOfStorage {
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in elements.
        strides: Vec<usize>,
        /// Its first element.
        offset: usize,
        /// The bytes there are.
        storage_bytes: usize,
    },
    /// Shape and strides have different lengths, or too many.
    #[error(
        "a tensor has {dimensions} dimensions and {strides} strides: expected the same number, at most {limit}"
    )]
    Dimensions {
        /// Length of the shape.
        dimensions: usize,
        /// Length of the strides.
        strides: usize,
        /// The most dimensions of a tensor.
        limit: usize,
    },
    /// The size of the tensor does not fit the address space.
    #[error("a tensor of type `{dtype}` and shape {shape:?} is too large for any memory")]
    SizeOverflow {
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Packed elements that do not lie one after another in whole bytes.
    #[error(
        "a tensor of the packed type `{dtype}` and shape {shape:?} must be contiguous and fill whole bytes"
    )]
    Packed {
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A tensor that repeats few bytes so often that unfolding it would fill the memory.
    #[error(
        "a tensor of shape {shape:?} repeats {storage_bytes} bytes to fill {needed_bytes}, more than the \
         {limit_bytes} that are unfolded; save `tensor.contiguous()` or the tensor before `expand`"
    )]
    Expanded {
        /// Its shape.
        shape: Vec<usize>,
        /// The bytes there are.
        storage_bytes: usize,
        /// The bytes it would need.
        needed_bytes: usize,
        /// The most bytes unfolded.
        limit_bytes: usize,
    },
}

/// What is wrong with a file of `torch.save`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TorchFault {
    /// The file is neither of the formats of `torch.save`.
    #[error("it is no file of `torch.save`: expected a zip archive or PyTorch's old format")]
    NotTorch,
    /// The file is a pointer of git-lfs.
    #[error("it is a git-lfs pointer, not the weights; fetch them with `git lfs pull`")]
    GitLfsPointer,
    /// The file is an archive of `tar`, the first format of PyTorch.
    #[error(
        "it is a tar archive of PyTorch 0.1, which is not read; save it again with a newer PyTorch"
    )]
    Tar,
    /// The file is a program of TorchScript.
    #[error(
        "it is a TorchScript program, not a state dict; save `model.state_dict()` with `torch.save`"
    )]
    TorchScript,
    /// The zip archive is damaged.
    #[error("its zip directory cannot be read; download or copy the file again")]
    Zip {
        /// What the zip reader said.
        #[source]
        source: rawzip::Error,
    },
    /// The zip archive holds no pickle of PyTorch.
    #[error("it is a zip archive without `data.pkl`, so not of `torch.save`")]
    NoPickle,
    /// A record of the archive is missing.
    #[error("its record `{record}` is missing; the file is damaged")]
    RecordMissing {
        /// The record, without the root of the archive.
        record: String,
    },
    /// A record stands twice in the archive.
    #[error("its record `{record}` stands twice; the file is damaged")]
    DuplicateRecord {
        /// The record.
        record: String,
    },
    /// There are more records than this crate reads.
    #[error("it has more than {limit} records, the most that are read")]
    TooManyRecords {
        /// The most records read.
        limit: usize,
    },
    /// A record is packed in an unknown way.
    #[error(
        "its record `{record}` is packed with method {method}: expected stored (0) or deflated (8)"
    )]
    Compression {
        /// The record.
        record: String,
        /// The number of the method.
        method: u16,
    },
    /// A deflated record cannot be unpacked to the size it states.
    #[error("its record `{record}` cannot be unpacked; the file is damaged")]
    Inflate {
        /// The record.
        record: String,
        /// What the unpacker said.
        #[source]
        source: io::Error,
    },
    /// A record is shorter than the numbers it should hold.
    #[error(
        "its record `{record}` has {found_bytes} bytes: expected {expected_bytes}; the file is damaged"
    )]
    RecordTooShort {
        /// The record.
        record: String,
        /// What the pickle says.
        expected_bytes: usize,
        /// What is there.
        found_bytes: usize,
    },
    /// A record that is read into memory is longer than this crate reads.
    #[error(
        "its record `{record}` has {found_bytes} bytes, more than the {limit_bytes} that are read"
    )]
    RecordTooLong {
        /// The record.
        record: String,
        /// Its length.
        found_bytes: usize,
        /// The longest length read.
        limit_bytes: usize,
    },
    /// The byte order is neither little nor big.
    #[error("its byte order is `{found}`: expected `little` or `big`")]
    ByteOrder {
        /// The text of the record.
        found: String,
    },
    /// The pickle cannot be read.
    #[error("its pickle cannot be read")]
    Pickle {
        /// What is wrong with it.
        #[source]
        source: PickleFault,
    },
    /// A tensor does not fit its bytes.
    #[error("one of its tensors is damaged")]
    Layout {
        /// What is wrong with the tensor.
        #[source]
        source: LayoutFault,
    },
    /// A file in the old format ends too early, or its parts do not fit each other.
    #[error("{what} of the old format is damaged; download or copy the file again")]
    Legacy {
        /// The part.
        what: &'static str,
    },
    /// The file holds no table of tensors.
    #[error("expected a dict from name to tensor, found {found}{}", hint(.nested))]
    NotAStateDict {
        /// What it holds.
        found: String,
        /// Keys under which it holds such a dict.
        nested: Vec<String>,
    },
}

fn hint(nested: &[String]) -> String {
    if nested.is_empty() {
        return String::new();
    }
    format!(
        "; the weights seem to be in {}: save that part alone",
        super::wording::quoted(nested)
    )
}

impl From<PickleFault> for TorchFault {
    fn from(source: PickleFault) -> Self {
        Self::Pickle { source }
    }
}

impl From<LayoutFault> for TorchFault {
    fn from(source: LayoutFault) -> Self {
        Self::Layout { source }
    }
}

/// What is wrong with a value that was to be written in PyTorch's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TorchWriteFault {
    /// PyTorch has no such type.
    #[error("PyTorch has no tensors of type `{dtype}`; convert them first")]
    Dtype {
        /// The type.
        dtype: Dtype,
    },
    /// numpy has no such type.
    #[error("numpy has no arrays of type `{dtype}`; write a tensor instead")]
    ArrayType {
        /// The type.
        dtype: Dtype,
    },
    /// The bytes of an array are still to come; only those of tensors may.
    #[error("the bytes of a numpy array must be there from the start")]
    PendingArray,
    /// Values are nested too deeply.
    #[error("values are nested more than {limit} deep")]
    TooDeep {
        /// The deepest nesting written.
        limit: usize,
    },
    /// An object of a class that is not known cannot be written.
    #[error("an object of the unknown class `{class}` cannot be written; leave it out")]
    UnknownClass {
        /// Module and name.
        class: String,
    },
    /// A storage came that no tensor waits for.
    #[error("all storages are written; finish the file")]
    NothingPending,
    /// A storage has another length than its tensors need.
    #[error("storage {storage}: expected {expected_bytes} bytes, found {found_bytes}")]
    WrongSize {
        /// Its place among the storages.
        storage: usize,
        /// What was announced.
        expected_bytes: usize,
        /// What came.
        found_bytes: usize,
    },
    /// The file was finished before all storages were written.
    #[error("{missing} storages are still to be written")]
    Unfinished {
        /// How many.
        missing: usize,
    },
    /// An earlier write failed and the file was given up.
    #[error("an earlier write failed and the file was given up; begin again with a new writer")]
    GivenUp,
}
