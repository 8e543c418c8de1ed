use std::num::NonZeroUsize;
use std::path::PathBuf;

use accelerate::optim::SchedulerType;
use accelerate::precision::MixedPrecision;
use accelerate_models::ModelSource;
use clap::Parser;

/// Fine-tunes a small BERT for sentiment, with every feature behind a flag.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Folder with `config.json`, `model.safetensors` and `tokenizer.json`, or a hub id.
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
    /// How many snippets, evenly spread, are held out for evaluation.
    #[arg(long, default_value = "1000")]
    pub(crate) held_out: NonZeroUsize,
    /// Stop each epoch after this many batches.
    #[arg(long)]
    pub(crate) max_steps: Option<u64>,

    /// The type of what is computed: `no`, `fp16`, `bf16`; the launcher's choice where absent.
    #[arg(long)]
    pub(crate) mixed_precision: Option<MixedPrecision>,
    /// Batches whose gradients are added up before a step; the launcher's choice where absent.
    #[arg(long)]
    pub(crate) gradient_accumulation_steps: Option<NonZeroUsize>,
    /// Scale gradients down to this norm.
    #[arg(long, value_parser = positive)]
    pub(crate) max_grad_norm: Option<f64>,
    /// Cut each value of the gradients at plus and minus this.
    #[arg(long, value_parser = positive, conflicts_with = "max_grad_norm")]
    pub(crate) max_grad_value: Option<f64>,

    /// Seed of the order, the new weights and dropout.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Other dropout on each rank; the order of samples stays common.
    #[arg(long)]
    pub(crate) device_specific_seed: bool,
    /// Only algorithms that give the same bits in every run.
    #[arg(long)]
    pub(crate) deterministic: bool,

    /// Highest learning rate.
    #[arg(long, default_value = "5e-5", value_parser = positive)]
    pub(crate) lr: f64,
    /// How strongly weights are drawn to zero; offsets and norms are not.
    #[arg(long, default_value_t = 0.01)]
    pub(crate) weight_decay: f64,
    /// How the learning rate goes, by the name that transformers has for it.
    #[arg(long, default_value_t = SchedulerType::Linear)]
    pub(crate) lr_scheduler: SchedulerType,
    /// Share of the steps in which the learning rate rises.
    #[arg(long, default_value = "0.1", value_parser = share)]
    pub(crate) warmup_ratio: f64,

    /// Split each batch of the loader over the processes, instead of one batch for each.
    #[arg(long)]
    pub(crate) split_batches: bool,
    /// Read all data on the first rank, which sends the others theirs.
    #[arg(long)]
    pub(crate) dispatch_batches: bool,
    /// Threads that make batches.
    #[arg(long, default_value_t = 1)]
    pub(crate) num_workers: usize,

    /// Write loss, learning rate and accuracy as a picture.
    #[arg(long, value_name = "SVG")]
    pub(crate) curves: Option<PathBuf>,
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    let value = value.filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a number above zero, such as 5e-5".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    let value = value.filter(|value: &f64| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "expected a number within 0..=1, such as 0.1".to_owned())
}
