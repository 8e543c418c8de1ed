//! What can be wrong with a folder of offloaded weights.

use super::LayoutFault;
use crate::dtype::Dtype;

/// Why a folder of offloaded weights cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadFault {
    /// The index is no JSON object of the right form.
    #[error("expected a JSON object from name to `dtype` and `shape`")]
    NotAnIndex {
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// The index is longer than this crate reads.
    #[error("the index has {found_bytes} bytes, more than the {limit_bytes} that are read")]
    TooLong {
        /// Its length.
        found_bytes: usize,
        /// The longest length read.
        limit_bytes: usize,
    },
    /// A type has an unknown name.
    #[error("weight `{weight}` is of the unknown type `{found}`")]
    UnknownDtype {
        /// The weight.
        weight: String,
        /// The name of the type.
        found: String,
    },
    /// A type that the folder cannot hold.
    #[error("weight `{weight}` is of type `{dtype}`, which an offload folder cannot hold")]
    Dtype {
        /// The weight.
        weight: String,
        /// The type.
        dtype: Dtype,
    },
    /// A name that could lead out of the folder.
    #[error("weight `{weight}` cannot be a file name in the folder; rename it")]
    Name {
        /// The weight.
        weight: String,
    },
    /// The file of a weight has another length than its type and shape need.
    #[error(
        "the file of weight `{weight}`: expected {expected_bytes} bytes, found {found_bytes}; offload it again"
    )]
    WrongSize {
        /// The weight.
        weight: String,
        /// What type and shape need.
        expected_bytes: usize,
        /// What is there.
        found_bytes: usize,
    },
    /// Type and shape do not make a sound tensor.
    #[error("weight `{weight}` cannot be a tensor")]
    Layout {
        /// The weight.
        weight: String,
        /// What is wrong.
        #[source]
        source: LayoutFault,
    },
}
