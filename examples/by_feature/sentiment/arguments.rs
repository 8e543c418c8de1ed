use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

/// What every example can be told.
#[derive(Debug, Clone, Args)]
// The arguments of each feature are a group of the same name around this one.
#[group(skip)]
pub(crate) struct Arguments {
    /// Folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    #[arg(long, default_value = ".data/minilm")]
    pub(crate) model: PathBuf,
    /// Lines of id, mean rating in -4..4 and text, divided by tabs.
    #[arg(
        long,
        default_value = ".data/movie-reviews/movieReviewSnippets_GroundTruth.txt"
    )]
    pub(crate) data: PathBuf,
    /// How many snippets to train on.
    #[arg(long, default_value = "1024")]
    pub(crate) samples: NonZeroUsize,
    /// How many snippets, evenly spread, are held out for evaluation.
    #[arg(long, default_value = "203")]
    pub(crate) held_out: NonZeroUsize,
    /// How often the training part is gone through.
    #[arg(long, default_value_t = 1)]
    pub(crate) epochs: u64,
    /// Samples in a batch of one process.
    #[arg(long, default_value = "16")]
    pub(crate) batch_size: NonZeroUsize,
    /// Tokens of a text that are used.
    #[arg(long, default_value = "64")]
    pub(crate) max_length: NonZeroUsize,
    /// Learning rate.
    #[arg(long, default_value_t = 1e-4)]
    pub(crate) lr: f64,
    /// Seed of the order, the new weights and dropout.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}
