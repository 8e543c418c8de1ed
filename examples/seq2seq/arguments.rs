use std::num::NonZeroUsize;
use std::path::PathBuf;

use accelerate_models::t5::T5Config;
use clap::Parser;

use crate::tokens::{END, PADDING};

/// Trains a small T5 to tidy up text.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Lines of id, mean rating and text, divided by tabs.
    #[arg(long)]
    pub(crate) data: PathBuf,
    /// Folder for the trained model and its tokenizer; none is written without it.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// How often the training part is gone through.
    #[arg(long, default_value_t = 5)]
    pub(crate) epochs: u64,
    /// Lines in a batch of one process.
    #[arg(long, default_value = "32")]
    pub(crate) batch_size: NonZeroUsize,
    /// Words of a line that are used.
    #[arg(long, default_value = "4")]
    pub(crate) words: NonZeroUsize,
    /// How many lines, evenly spread, are held out for evaluation.
    #[arg(long, default_value = "256")]
    pub(crate) held_out: NonZeroUsize,
    /// Tokens of the tokenizer, which is learnt from the training part.
    #[arg(long, default_value = "512")]
    pub(crate) vocab_size: NonZeroUsize,
    /// Layers of the encoder, and of the decoder.
    #[arg(long, default_value = "2")]
    pub(crate) layers: NonZeroUsize,
    /// Width of the hidden states.
    #[arg(long, default_value = "64")]
    pub(crate) width: NonZeroUsize,
    /// Heads of each attention.
    #[arg(long, default_value = "4")]
    pub(crate) heads: NonZeroUsize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 5e-3)]
    pub(crate) lr: f64,
    /// Norm that gradients are scaled down to.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) max_grad_norm: f64,
    /// Seed of the order and the first weights.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Stop each epoch after this many steps.
    #[arg(long)]
    pub(crate) max_steps: Option<u64>,
    /// Write loss and both scores as a picture.
    #[arg(long, value_name = "SVG")]
    pub(crate) curves: Option<PathBuf>,
}

impl Arguments {
    /// The model, for so many tokens. Without dropout: it sees every line a few times only.
    pub(crate) fn model(&self, vocab_size: usize) -> T5Config {
        let size = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut config = T5Config::default();
        config.vocab_size = size(vocab_size);
        config.d_model = size(self.width.get());
        config.d_ff = size(2 * self.width.get());
        config.d_kv = size(self.width.get().div_ceil(self.heads.get()));
        config.num_heads = size(self.heads.get());
        config.num_layers = self.layers.get();
        config.dropout_rate = 0.0;
        config.pad_token_id = Some(PADDING);
        config.eos_token_id = Some(accelerate_models::t5::EndTokens::One(END));
        config.decoder_start_token_id = Some(PADDING);
        config
    }
}
