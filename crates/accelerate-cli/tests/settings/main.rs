//! Which value counts, where it came from, and that processes really get it.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../usage/command.rs"]
mod command;
mod default_file;
mod effects;
mod mutations;
mod sources;
