//! `accelerate estimate-memory` from outside: the built binary on folders of a test.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod command;
mod devices;
mod hub;
mod models;
mod plans;
