//! `accelerate launch` from outside: the built binary, real processes.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod codes;
mod launcher;
mod output;
mod ports;
#[cfg(target_os = "linux")]
mod tree;
