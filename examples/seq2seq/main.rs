//! Trains a small T5 to tidy up text: real lines of movie reviews in, lower-case words out.
//!
//! ```text
//! seq2seq --data .data/movie-reviews/movieReviewSnippets_GroundTruth.txt   # 1 process
//! accelerate launch --cpu --num_processes 2 seq2seq --data ...             # N processes
//! ```
//!
//! Everything is learnt from nothing: the tokens, how to read, and how to write. With `--epochs 3`,
//! two minutes on one CPU core, 82 % of the held-out tokens were right and 31 % of the lines written
//! without a mistake.

#![forbid(unsafe_code)]

mod arguments;
mod batches;
mod evaluation;
mod pairs;
#[path = "../nlp/snippets.rs"]
mod snippets;
mod tokens;
mod training;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use clap::Parser;

fn main() -> ExitCode {
    exit_code(training::run(&arguments::Arguments::parse()))
}
