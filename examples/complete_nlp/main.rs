//! The sentiment job of `nlp` with every feature at once, each behind a flag.
//!
//! ```text
//! complete_nlp --model .data/minilm --data .data/movie-reviews/movieReviewSnippets_GroundTruth.txt \
//!     --mixed-precision bf16 --gradient-accumulation-steps 4 --max-grad-norm 1 \
//!     --lr-scheduler cosine --curves curves.svg
//! accelerate launch --cpu --num_processes 2 complete_nlp ...
//! ```

#![forbid(unsafe_code)]

mod arguments;
#[path = "../nlp/batches.rs"]
mod batches;
#[path = "../nlp/evaluation.rs"]
mod evaluation;
#[path = "../nlp/model_folder.rs"]
mod model_folder;
#[path = "../nlp/output.rs"]
mod output;
mod parts;
#[path = "../nlp/snippets.rs"]
mod snippets;
mod training;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use clap::Parser;

fn main() -> ExitCode {
    exit_code(training::run(&arguments::Arguments::parse()))
}
