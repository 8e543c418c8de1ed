//! What several example programs have in common.
//!
//! | module | room for |
//! | --- | --- |
//! | [`curves`] | pictures of what changed while a model was trained |
//! | [`failure`] | how a program ends |
//! | [`images`] | labelled images, and how they become batches |
//! | [`progress`] | bars that show how far an epoch is |
//! | [`running`] | being ended early, and going on later |
#![forbid(unsafe_code)]

pub mod curves;
pub mod failure;
pub mod images;
pub mod progress;
pub mod running;
