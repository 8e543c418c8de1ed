//! What is to run, as plain data: no tensors, no processes, no side effects.
//!
//! - [`cluster`]: what a cluster manager or an MPI launcher says about the place of this process.
//! - [`config`]: the config file.
//! - [`env`](mod@env): the environment protocol. One table says which variables exist, what they
//!   mean, who writes them and how they are read. Variables are read only through an
//!   [`Environment`](env::Environment) and never written: a child process gets an
//!   [`EnvOverlay`](env::EnvOverlay).
//! - [`settings`]: every setting of a launch, and where its value came from.
//! - [`topology`]: which process this is among how many, and where they meet.
//! - [`launch`]: how many processes a launcher starts, what they run and what each one is told.
//! - [`parallel`]: what is sharded over which ranks, and how.
//! - [`device_map`]: which part of a model that is larger than one device is where.
//! - [`size_text`]: sizes as people write and read them.
//!
//! The launcher and the training library both use this crate, so what one writes is what the other
//! reads.
#![forbid(unsafe_code)]

mod choice;
pub mod cluster;
pub mod config;
pub mod device_map;
pub mod env;
mod error;
mod exit_code;
mod hint;
pub mod launch;
pub mod parallel;
mod precision;
pub mod settings;
pub mod size_text;
pub mod topology;

pub use error::{Contradiction, Error, Result, Setting};
pub use exit_code::LEFT_EARLY;
pub use hint::Hint;
pub use precision::MixedPrecision;
