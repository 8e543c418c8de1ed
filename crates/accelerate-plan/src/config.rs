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
pub use inline::to_json;
pub(crate) use inline::{from_inline_json, inline_json};
pub use location::{ConfigFormat, default_config_path};
pub use nearest::nearest;
pub use to_fsdp2::{Conversion, ConversionWarning, to_fsdp2};
pub use value::Value;
pub use yaml::{Node, NodeKind, Problem, SyntaxError};
