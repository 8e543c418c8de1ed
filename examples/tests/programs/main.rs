//! The example programs from outside: built binaries, real processes, small real files.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

mod by_feature;
mod clm;
mod complete_nlp;
mod cv;
mod first_all_reduce;
mod nlp_bad_input;
mod nlp_failures;
mod nlp_job;
mod nlp_plain;
mod process;
mod seq2seq;
mod sharding;
mod verify_resume;
mod workplace;
