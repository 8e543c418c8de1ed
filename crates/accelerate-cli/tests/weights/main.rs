//! Commands on files of weights, from outside: the built binary on folders of a test.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod checkpoints;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../usage/command.rs"]
mod command;
mod convert;
mod damaged;
mod diff;
mod inspect;
mod limits;
mod merge;
mod original;
