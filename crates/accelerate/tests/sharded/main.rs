//! Models of which each rank keeps a part, on real ranks.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

mod bad_input;
mod deepspeed;
mod environment;
mod equality;
mod faults;
mod job;
mod looking;
mod memory;
mod parity;
mod pipeline;
mod precision;
mod recompute;
mod state;
mod traffic;
