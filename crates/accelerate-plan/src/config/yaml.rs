//! YAML 1.1, read with positions and written in the one style that the original writes.
//!
//! [`parse`] takes scalars as YAML 1.1 does and as the original therefore sees them: an unquoted
//! `no` is a truth value, `1:30` is 90, and `1e8` without a dot is a text. [`write`](fn@write) gives
//! the bytes that PyYAML's `safe_dump` gives for the same value.
//!
//! Where reading differs from PyYAML, on purpose:
//! - A key that a map has twice is an error; PyYAML takes the last one without a word.
//! - Where `<<` merges several maps that share a key, the first one counts, as YAML says.
//! - A date is a text, since no setting is a date. So are a lone `=`, and `<<` as a value.
//! - A few layouts that only YAML 1.1 allows are refused, such as the items of `[...]` on lines that
//!   are not indented; a block text without a line break at the end of the file gets one.
//! - A whole number must fit into 64 bits.
//! - Aliases may not blow a small text up into a large value ([`MAX_NODES`]), and values may not be
//!   nested without end ([`MAX_DEPTH`]).

mod entries;
mod failure;
mod node;
mod page;
mod read;
mod scalar;
mod text;
mod timestamp;
mod write;

pub(super) use entries::Entries;
pub use failure::{Problem, SyntaxError};
pub use node::{Node, NodeKind};
pub use read::parse;
pub use write::write;

/// How many values a text may hold, counted after aliases have been replaced. A long text counts as
/// one more for each 100 bytes.
pub const MAX_NODES: usize = 100_000;

/// How deep lists and maps may be nested.
pub const MAX_DEPTH: usize = 64;
