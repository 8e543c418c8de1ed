//! Process groups and the reducer between real ranks over Gloo.
//!
//! Every test starts itself again once per rank; see `accelerate-testkit`.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]
#![expect(clippy::panic, reason = "hooks that panic are tested")]
#![expect(
    clippy::print_stdout,
    reason = "a rank's output is shown when its test fails"
)]

mod collectives;
mod determinism;
mod exchange;
mod failures;
mod groups;
mod hooks;
mod lists;
mod mixed_ranks;
mod network;
mod overlap;
mod point_to_point;
mod reducer;
mod support;
