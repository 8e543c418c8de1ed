//! What several example programs have in common.
//!
//! | module | room for |
//! | --- | --- |
//! | [`curves`] | pictures of what changed while a model was trained |
#![forbid(unsafe_code)]

pub mod curves;
