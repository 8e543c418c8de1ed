//! What both forms of the example are told.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use accelerate_models::resnet::ResNetArchitecture;
use clap::Parser;

/// Trains a ResNet to tell images apart: handwritten digits, or those of a folder.
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
    /// Height and width to which images are brought.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) image_size: u32,
    /// How often the training part is gone through.
    #[arg(long, default_value = "3")]
    pub(crate) epochs: NonZeroU64,
    /// Images in a batch of one process.
    #[arg(long, default_value = "32")]
    pub(crate) batch_size: NonZeroUsize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 3e-3)]
    pub(crate) lr: f64,
    /// Seed of the order and the new weights.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Share of the images, evenly spread, that is held out for evaluation.
    #[arg(long, default_value_t = 0.2)]
    pub(crate) held_out: f64,
    /// Folder for the trained network; none is written without it.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// SVG file for the training curves; none is written without it.
    #[arg(long)]
    pub(crate) curves: Option<PathBuf>,
}

fn network(name: &str) -> Result<ResNetArchitecture, String> {
    let known = || ResNetArchitecture::names().collect::<Vec<_>>().join(", ");
    ResNetArchitecture::from_name(name).ok_or_else(|| format!("expected one of {}", known()))
}
