//! What several example programs have in common.
//!
//! | module | room for |
//! | --- | --- |
//! | [`curves`] | pictures of what changed while a model was trained |
//! | [`failure`] | how a program ends |
//! | [`progress`] | bars that show how far an epoch is |
#![forbid(unsafe_code)]

pub mod curves;
pub mod failure;
pub mod progress;
