//! Models that are spread over places: what they compute, and what they refuse.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

mod bad_input;
mod casting;
mod equality;
mod hooks;
mod loading;
mod model;
mod offload;
mod prefetch;
mod several_ranks;
