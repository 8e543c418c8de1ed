//! Jobs on several machines: several launchers on this one, whose ranks are shell scripts.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../usage/command.rs"]
mod command;
mod counts;
mod failures;
mod job;
mod waiting;
