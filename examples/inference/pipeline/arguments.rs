use std::num::NonZeroUsize;
use std::path::PathBuf;

use accelerate::parallel::PipelineOptions;
use accelerate_models::ModelSource;
use clap::Parser;

/// Runs a GPT-2 or Llama of which each rank holds a stage.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Folder with `config.json`, weights and, for prompts, `tokenizer.json`; or a hub id:
    /// `owner/name`, with `@revision` behind it for another branch, tag or commit than `main`.
    #[arg(long)]
    pub(crate) model: ModelSource,
    /// File with a prompt on each line; a few of our own without it.
    #[arg(long)]
    pub(crate) prompts: Option<PathBuf>,
    /// Made-up token ids in the place of prompts: so many rows. Needs no tokenizer.
    #[arg(long, conflicts_with = "prompts")]
    pub(crate) made_up_rows: Option<NonZeroUsize>,
    /// How many made-up tokens each row has.
    #[arg(long, default_value = "128")]
    pub(crate) made_up_tokens: NonZeroUsize,
    /// Into how many parts a batch is cut; as many as processes where nobody says.
    #[arg(long)]
    pub(crate) num_chunks: Option<NonZeroUsize>,
    /// Where the model is cut, by names of modules such as `model.layers.7`; by bytes where nobody
    /// says.
    #[arg(long, value_delimiter = ',')]
    pub(crate) split_points: Vec<String>,
    /// How often the batch goes through.
    #[arg(long, default_value = "1")]
    pub(crate) rounds: NonZeroUsize,
    /// Print times and a sum over the next tokens as one line of JSON, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Arguments {
    /// How the model is cut.
    pub(crate) fn options(&self) -> PipelineOptions {
        let mut options = PipelineOptions::default();
        if !self.split_points.is_empty() {
            options = options.split_before(&self.split_points);
        }
        match self.num_chunks {
            Some(count) => options.num_chunks(count),
            None => options,
        }
    }
}
