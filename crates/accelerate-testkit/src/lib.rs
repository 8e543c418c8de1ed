//! Real ranks in a test, with a deadline.
//!
//! A test calls [`ranks`] with a closure. For every wanted number of processes the
//! test starts itself again that many times, each with `RANK`, `WORLD_SIZE` and a
//! common port; inside such a process [`ranks`] runs the closure. A rank that fails,
//! or a run that takes longer than its deadline, ends all ranks and fails the test
//! with the output of each.
//!
//! [`turn`] keeps tests of one process apart that share its random generator;
//! [`recorded_here`] says whether recorded numbers can be demanded to the last bit;
//! [`formula`] gives the numbers that recordings in Python start from.
#![forbid(unsafe_code)]

mod formula;
mod python;
mod rank;
mod recording;
mod run;
mod turn;

pub use formula::{formula, formula_salt};
pub use python::parity_python;
pub use rank::Rank;
pub use recording::recorded_here;
pub use run::{RankOutput, ranks, ranks_within, start_ranks};
pub use turn::{Turn, turn};
