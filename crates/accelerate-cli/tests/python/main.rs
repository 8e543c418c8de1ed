//! Beside the original: its own scripts started by us, its files, its flags, its variables.
//!
//! Everything named `parity_` needs Python with the original; `cargo xtask parity` runs it.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod environment;
mod files;
mod flags;
mod hang;
mod original;
mod ours;
mod scripts;
#[cfg(target_os = "linux")]
mod start_up;
