use std::path::PathBuf;

use clap::Parser;

/// Fine-tunes a small BERT for sentiment on movie-review snippets.
#[derive(Debug, Clone, Parser)]
pub struct Arguments {
    /// Folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    #[arg(long)]
    pub model: PathBuf,
    /// Lines of id, mean rating in -4..4 and text, divided by tabs.
    #[arg(long)]
    pub data: PathBuf,
    /// Folder for the trained model; none is written without it.
    #[arg(long)]
    pub output: Option<PathBuf>,
    /// How often the training part is gone through.
    #[arg(long, default_value_t = 1)]
    pub epochs: u64,
    /// Samples in a batch of one process.
    #[arg(long, default_value_t = 16)]
    pub batch_size: usize,
    /// Tokens of a text that are used.
    #[arg(long, default_value_t = 64)]
    pub max_length: usize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 5e-5)]
    pub lr: f64,
    /// Seed of the order, the new weights and dropout.
    #[arg(long, default_value_t = 42)]
    pub seed: i64,
    /// How many of the last snippets are held out for evaluation.
    #[arg(long, default_value_t = 1000)]
    pub held_out: usize,
    /// Stop after this many steps, without evaluation.
    #[arg(long)]
    pub max_steps: Option<usize>,
    /// Write times, memory and losses of every rank to `PATH.rankN.json`.
    #[arg(long, value_name = "PATH")]
    pub bench_json: Option<PathBuf>,
}
