//! What the program is told.

use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;

use accelerate::optim::SchedulerType;
use accelerate::precision::MixedPrecision;
use accelerate_models::resnet::ResNetArchitecture;
use clap::Parser;

/// Trains a ResNet to tell images apart, with every feature as a flag.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// The folder of the digits, or one with a folder of `.png` and `.jpg` files for each class.
    #[arg(long, default_value = ".data/digits")]
    pub(crate) data: PathBuf,
    /// The network: `resnet18`, `resnet34`, `resnet50` and so on.
    #[arg(long, default_value = "resnet18", value_parser = network)]
    pub(crate) model: ResNetArchitecture,
    /// Channels of the network's first stage; 64 is the published network.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) planes: i64,
    /// A folder or file with weights of this network to begin from; for other classes the
    /// classifier is new.
    #[arg(long, value_name = "PATH")]
    pub(crate) pretrained: Option<PathBuf>,
    /// Train the classifier only.
    #[arg(long)]
    pub(crate) freeze: bool,
    /// Take the statistics of batch norms over all processes.
    #[arg(long)]
    pub(crate) sync_batch_norm: bool,

    /// Height and width to which images are brought.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) image_size: u32,
    /// Train on a random part of each image, with at least this share of it.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) crop: Option<f64>,
    /// Mirror every other image, which is not for digits.
    #[arg(long)]
    pub(crate) flip: bool,
    /// Threads of a process that read and change images.
    #[arg(long, default_value_t = 2)]
    pub(crate) workers: usize,
    /// Share of the images, evenly spread, that is held out for evaluation.
    #[arg(long, default_value = "0.2", value_parser = share)]
    pub(crate) held_out: f64,

    /// How often the training part is gone through.
    #[arg(long, default_value = "3")]
    pub(crate) epochs: NonZeroU64,
    /// Images in a batch of one process.
    #[arg(long, default_value = "32")]
    pub(crate) batch_size: NonZeroUsize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 3e-3)]
    pub(crate) lr: f64,
    /// How the learning rate moves: `one_cycle`, `linear`, `cosine`, `constant` and so on.
    #[arg(long, default_value_t = ScheduleName::OneCycle)]
    pub(crate) schedule: ScheduleName,
    /// Updates in which the learning rate rises, for schedules that begin so.
    #[arg(long, default_value_t = 0)]
    pub(crate) warmup_steps: u64,
    /// Batches over which gradients are added up before an update.
    #[arg(long, default_value = "1")]
    pub(crate) gradient_accumulation_steps: NonZeroUsize,
    /// Largest norm of all gradients together; no limit without it.
    #[arg(long, value_name = "NORM")]
    pub(crate) clip_norm: Option<f64>,
    /// `no`, `fp16` or `bf16`; what the launcher says without it.
    #[arg(long)]
    pub(crate) mixed_precision: Option<MixedPrecision>,
    /// Seed of everything that is random.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,

    /// Folder for the trained network; none is written without it.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// SVG file for the training curves; none is written without it.
    #[arg(long)]
    pub(crate) curves: Option<PathBuf>,
}

/// How the learning rate moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScheduleName {
    OneCycle,
    Other(SchedulerType),
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneCycle => f.write_str("one_cycle"),
            Self::Other(name) => name.fmt(f),
        }
    }
}

impl FromStr for ScheduleName {
    type Err = accelerate::Error;

    fn from_str(name: &str) -> accelerate::Result<Self> {
        match name {
            "one_cycle" => Ok(Self::OneCycle),
            other => other.parse().map(Self::Other),
        }
    }
}

fn network(name: &str) -> Result<ResNetArchitecture, String> {
    let known = || ResNetArchitecture::names().collect::<Vec<_>>().join(", ");
    ResNetArchitecture::from_name(name).ok_or_else(|| format!("expected one of {}", known()))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share: &f64| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number within 0..=1".to_owned())
}
