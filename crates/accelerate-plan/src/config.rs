//! The config file: reading it with positions, and writing what the original reads.

mod value;

pub use value::Value;
