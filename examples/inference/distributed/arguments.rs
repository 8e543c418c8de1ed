use std::num::NonZeroUsize;
use std::path::PathBuf;

use accelerate_models::ModelSource;
use clap::Parser;

/// Continues prompts on all ranks together.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Folder with `config.json`, weights and `tokenizer.json`, or a hub id: `owner/name`, with
    /// `@revision` behind it for another branch, tag or commit than `main`.
    #[arg(long)]
    pub(crate) model: ModelSource,
    /// File with a prompt on each line; a few of our own without it.
    #[arg(long)]
    pub(crate) prompts: Option<PathBuf>,
    /// Prompts that are continued at the same time.
    #[arg(long, default_value = "8")]
    pub(crate) batch_size: NonZeroUsize,
    /// Tokens added to each prompt.
    #[arg(long, default_value = "32")]
    pub(crate) max_new_tokens: NonZeroUsize,
    /// Sequences that beam search follows; 1 is no beam search.
    #[arg(long, default_value = "1")]
    pub(crate) num_beams: NonZeroUsize,
    /// Draw tokens instead of taking the likeliest.
    #[arg(long)]
    pub(crate) sample: bool,
    /// Seed of what is drawn; each rank draws on from its own.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: i64,
}
