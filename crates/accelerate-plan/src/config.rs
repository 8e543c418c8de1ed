//! The config file: reading it with positions, and writing what the original reads.
//!
//! [`default_config_path`] says where it is, [`RawFile`] reads it. [`yaml`] and [`json`] turn text
//! into [`Node`]s, which know their line, and a [`Value`] into text.

mod error;
mod file;
mod inline;
pub mod json;
mod location;
mod nearest;
mod python_float;
mod to_fsdp2;
mod value;
pub mod yaml;

pub use error::{ConfigError, UnknownKey, WrongValue};
pub use file::{Entry, RawFile};
pub(crate) use inline::from_inline_json;
pub use inline::{inline_json, to_json};
pub use location::{ConfigFormat, default_config_path, expand_home, hub_home};
pub use nearest::nearest;
pub use python_float::python_float;
pub use to_fsdp2::{Conversion, ConversionWarning, to_fsdp2};
pub use value::Value;
pub use yaml::{Node, NodeKind, Problem, SyntaxError};
