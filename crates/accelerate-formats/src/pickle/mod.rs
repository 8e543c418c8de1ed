//! Pickles of Python, read as data.
//!
//! A pickle is a program for a small stack machine, and in Python it may call anything. The machine
//! here calls nothing: it keeps each call as a [`Node::Call`] that says what would have been called,
//! and whoever reads the graph gives the few known ones a meaning. A name that the reader did not
//! allow ends the reading as soon as it is mentioned, even where its value would not be used.
//!
//! This is our own and not a crate: `serde-pickle` knows neither persistent ids, which stand for
//! the storages of tensors, nor classes, and both are what these files consist of.
//!
//! However the pickle looks, reading it takes at most [`MAX_OPERATIONS`] nodes.

mod graph;
mod machine;
mod opcode;
mod write;

pub(crate) use self::graph::{Call, Graph, Id, Node};
pub(crate) use self::machine::read;
pub(crate) use self::write::PickleWriter;

/// The longest pickle read, in bytes: the limit of a safetensors header, which says as much.
pub(crate) const MAX_PICKLE_BYTES: usize = 100_000_000;
/// The most operations of a pickle. Each makes at most one node of 32 bytes.
const MAX_OPERATIONS: usize = 16_000_000;
/// The deepest nesting of values.
pub(crate) const MAX_DEPTH: usize = 100;

/// Says whether a pickle may mention this module and name.
pub(crate) type Allow<'a> = dyn Fn(&str, &str) -> bool + 'a;
