use std::num::NonZeroUsize;
use std::path::PathBuf;

use accelerate_examples::running::Running;
use accelerate_models::gpt2::GPT2Config;
use clap::Parser;

/// Trains a GPT-2 on text from nothing.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Files of text in UTF-8, or folders whose `.txt` files are read.
    #[arg(long, num_args = 1.., default_value = ".data/books")]
    pub(crate) data: Vec<PathBuf>,
    /// Folder for the model and its tokenizer; none is written without it.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// Folder with the `tokenizer.json` to use; without it one is learnt from the text.
    #[arg(long)]
    pub(crate) tokenizer: Option<PathBuf>,
    /// How many tokens a tokenizer that is learnt has at most.
    #[arg(long, default_value = "2048")]
    pub(crate) vocab_size: NonZeroUsize,
    /// Tokens in a block, which is what the model sees at once.
    #[arg(long, default_value = "128")]
    pub(crate) block_size: NonZeroUsize,
    /// Layers of the model.
    #[arg(long, default_value = "4")]
    pub(crate) layers: NonZeroUsize,
    /// Width of the model's states.
    #[arg(long, default_value = "128")]
    pub(crate) width: NonZeroUsize,
    /// Heads of each attention; they divide the width.
    #[arg(long, default_value = "4")]
    pub(crate) heads: NonZeroUsize,
    /// Probability to drop a value while training.
    #[arg(long, default_value_t = 0.1)]
    pub(crate) dropout: f64,
    /// How often the training part is gone through.
    #[arg(long, default_value_t = 2)]
    pub(crate) epochs: u64,
    /// Blocks in a batch of one process.
    #[arg(long, default_value = "16")]
    pub(crate) batch_size: NonZeroUsize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 1e-3)]
    pub(crate) lr: f64,
    /// Longest norm of all gradients together.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) max_grad_norm: f64,
    /// One block of so many is held out for evaluation.
    #[arg(long, default_value = "20")]
    pub(crate) hold_out_every: NonZeroUsize,
    /// Seed of the order, the new weights, dropout and the made-up text.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: i64,
    /// Stop an epoch after this many steps.
    #[arg(long)]
    pub(crate) max_steps: Option<usize>,
    /// Write the curves of losses and perplexity to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) curves: Option<PathBuf>,
    /// How the made-up text begins.
    #[arg(long, default_value = "Alice was")]
    pub(crate) prompt: String,
    /// How many tokens are made up; none where 0.
    #[arg(long, default_value_t = 64)]
    pub(crate) sample_tokens: i64,
    #[command(flatten)]
    pub(crate) running: Running,
}

impl Arguments {
    /// The model for a tokenizer of so many tokens.
    pub(crate) fn model(&self, vocab_size: usize, end: i64) -> GPT2Config {
        let mut config = GPT2Config::default();
        config.vocab_size = vocab_size as i64;
        config.n_positions = self.block_size.get() as i64;
        config.n_embd = self.width.get() as i64;
        config.n_layer = self.layers.get();
        config.n_head = self.heads.get() as i64;
        config.resid_pdrop = self.dropout;
        config.embd_pdrop = self.dropout;
        config.attn_pdrop = self.dropout;
        config.bos_token_id = Some(end);
        config.eos_token_id = vec![end];
        config.pad_token_id = Some(end);
        config
    }
}
