//! What can be wrong with a pickle.

/// Why a pickle is not read. Nothing of it was executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleFault {
    /// The pickle names something that is neither a tensor nor a plain value.
    #[error(
        "it uses `{name}`, which is not read: only tensors and plain values are, and nothing is executed; \
         save a plain state dict"
    )]
    Refused {
        /// Module and name.
        name: String,
    },
    /// Something that is read was called in a way that is not.
    #[error(
        "`{name}` is called with other arguments than {expected}; the file is damaged or from an unknown version"
    )]
    Arguments {
        /// Module and name.
        name: String,
        /// What the arguments should be.
        expected: &'static str,
    },
    /// The pickle ends too early.
    #[error("the pickle ends within the operation at byte {at}; the file is damaged")]
    Truncated {
        /// Where the operation begins.
        at: usize,
    },
    /// An operation this crate does not know.
    #[error(
        "unknown pickle operation 0x{opcode:02x} at byte {at}; the file is damaged, or not of a kind that is read"
    )]
    UnknownOperation {
        /// The byte.
        opcode: u8,
        /// Where it stands.
        at: usize,
    },
    /// An operation does not find what it works on.
    #[error("the pickle operation at byte {at} needs {expected}; the file is damaged")]
    Operand {
        /// Where the operation stands.
        at: usize,
        /// What it needs.
        expected: &'static str,
    },
    /// Text is not UTF-8.
    #[error("the text at byte {at} is not UTF-8; the file is damaged")]
    NotUtf8 {
        /// Where the operation stands.
        at: usize,
    },
    /// A whole number has more than 128 bits.
    #[error("the whole number at byte {at} has {bytes} bytes, more than the 16 that are read")]
    NumberTooLong {
        /// Where the operation stands.
        at: usize,
        /// The length of the number.
        bytes: usize,
    },
    /// The pickle makes more objects than this crate keeps.
    #[error("it describes more than {limit} objects, the most that are read")]
    TooManyObjects {
        /// The most objects read.
        limit: usize,
    },
    /// The pickle repeats so much text that it would fill the memory.
    #[error(
        "its text, with all repetitions, has more than {limit_bytes} bytes, the most that is read"
    )]
    TooMuchText {
        /// The most bytes read.
        limit_bytes: usize,
    },
    /// Values are nested too deeply, or contain themselves.
    #[error("its values are nested more than {limit} deep, or contain themselves")]
    TooDeep {
        /// The deepest nesting read.
        limit: usize,
    },
    /// A value that something else was expected in place of.
    #[error("expected {expected}, found {found}; the file is damaged or from an unknown version")]
    Unexpected {
        /// What was needed.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
}
