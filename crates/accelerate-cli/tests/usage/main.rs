//! What is typed wrongly, and what help there is.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod bad_input;
mod bad_values;
#[expect(dead_code, reason = "other tests need more of it")]
mod command;
mod help;
mod programs;
mod spelling;
