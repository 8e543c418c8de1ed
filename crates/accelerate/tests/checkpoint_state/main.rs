//! Saving everything that training depends on, and going on from it.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

mod broken;
mod contents;
mod job;
mod killed;
mod leaving;
mod resume;
mod streams;
