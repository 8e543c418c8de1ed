//! `accelerate config` and `accelerate to-fsdp2` from outside: the built binary, real files.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod command;
mod interviews;
mod original;
mod plain;
mod subcommands;
#[cfg(unix)]
mod terminal;
