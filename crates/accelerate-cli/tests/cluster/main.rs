//! Launchers that something else started, and launchers that have something else start the ranks.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../usage/command.rs"]
mod command;
mod deepspeed;
mod managers;
mod mpirun;
