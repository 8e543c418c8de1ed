//! Saving everything that training depends on, and going on from it.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

mod background;
mod broken;
mod comm_hooks;
mod contents;
mod hooks;
mod job;
mod killed;
mod leaving;
mod nodes;
mod optimizers;
mod resume;
mod save_model;
mod streams;
