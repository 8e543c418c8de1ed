//! What is to run, as plain data: no tensors, no processes, no side effects.
//!
//! - [`config`]: the config file.
//! - [`env`](mod@env): the environment protocol. One table says which variables exist, what they
//!   mean, who writes them and how they are read. Variables are read only through an
//!   [`Environment`](env::Environment) and never written: a child process gets an
//!   [`EnvOverlay`](env::EnvOverlay).
//! - [`topology`]: which process this is among how many, and where they meet.
//! - [`launch`]: how many processes a launcher starts, what they run and what each one is told.
//!
//! The launcher and the training library both use this crate, so what one writes is what the other
//! reads.
#![forbid(unsafe_code)]

pub mod config;
pub mod env;
mod error;
mod hint;
pub mod launch;
mod precision;
pub mod topology;

pub use error::{Error, Result, Setting};
pub use hint::Hint;
pub use precision::MixedPrecision;
