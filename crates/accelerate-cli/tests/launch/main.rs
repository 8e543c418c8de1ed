//! `accelerate launch` from outside: the built binary, real processes.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod codes;
mod golden;
mod launcher;
mod live;
mod logs;
mod output;
#[cfg(target_os = "linux")]
mod placement;
mod ports;
mod reports;
mod restarts;
#[cfg(target_os = "linux")]
mod stress;
mod time_limit;
#[cfg(target_os = "linux")]
mod tree;
