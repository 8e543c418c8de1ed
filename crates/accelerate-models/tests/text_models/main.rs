//! BERT's heads and T5 against the numbers that `tests/parity` recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bert;
mod recorded;
mod seeded;
mod t5;
