use std::num::NonZeroUsize;
use std::path::PathBuf;

use accelerate_models::ModelSource;
use clap::Parser;

/// Fine-tunes a small BERT for sentiment on movie-review snippets.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Folder with `config.json`, `model.safetensors` and `tokenizer.json`, or a hub id:
    /// `owner/name`, with `@revision` behind it for another branch, tag or commit than `main`.
    #[arg(long)]
    pub(crate) model: ModelSource,
    /// Lines of id, mean rating in -4..4 and text, divided by tabs.
    #[arg(long)]
    pub(crate) data: PathBuf,
    /// Folder for the trained model; none is written without it.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// How often the training part is gone through.
    #[arg(long, default_value_t = 1)]
    pub(crate) epochs: u64,
    /// Samples in a batch of one process.
    #[arg(long, default_value = "16")]
    pub(crate) batch_size: NonZeroUsize,
    /// Tokens of a text that are used.
    #[arg(long, default_value = "64")]
    pub(crate) max_length: NonZeroUsize,
    /// Put texts of about the same length into a batch: less padding, other batches.
    #[arg(long)]
    pub(crate) group_by_length: bool,
    /// Highest learning rate.
    #[arg(long, default_value = "5e-5", value_parser = learning_rate)]
    pub(crate) lr: f64,
    /// Seed of the order, the new weights and dropout.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: i64,
    /// How many snippets, evenly spread, are held out for evaluation.
    #[arg(long, default_value = "1000")]
    pub(crate) held_out: NonZeroUsize,
    /// Stop after this many steps, without evaluation.
    #[arg(long)]
    pub(crate) max_steps: Option<usize>,
    /// Write times, memory and losses of every rank to `PATH.rankN.json`.
    #[arg(long, value_name = "PATH")]
    pub(crate) bench_json: Option<PathBuf>,
}

fn learning_rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| "expected a number that is not negative, such as 5e-5".to_owned())
}
