//! JSON, read into the same tree as YAML and written as the original writes it.
//!
//! The grammar is `serde_json`'s. It hands out each value as a piece of the text, and where a piece
//! begins gives its line and column. So keys and values have exact places, without a second parser.
//!
//! A number with an exponent is a number here (`1e8`), while YAML takes it as a text. `NaN` and
//! `Infinity`, which Python adds to JSON, are refused.

mod read;
mod write;

pub use read::parse;
pub use write::write;
