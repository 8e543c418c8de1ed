//! What a training tells about itself.
//!
//! A [`Tracker`] takes down settings, numbers, pictures and tables. The tracker [`Local`] needs no
//! service: it writes a folder that anything can read, this crate too: see [`run`].
#![forbid(unsafe_code)]

mod clock;
mod error;
mod file_name;
mod identifier;
mod local;
mod machine;
mod media;
pub mod run;
pub mod settings;
mod tracker;
mod value;

pub use error::{Error, Result};
pub use local::Local;
pub use media::{Colour, Image, Table};
pub use tracker::{RunContext, Tracker};
pub use value::{Value, Values};
