//! Schedule-free AdamW: the optimizer averages the weights, and nobody has to say in advance how
//! long training takes. It evaluates with other weights than it trains with, so it has two modes.

pub(crate) mod accelerated;
pub(crate) mod plain;

use accelerate::Result;
use accelerate::optim::{AdamWScheduleFree, AdamWScheduleFreeConfig};
use clap::Args;

use crate::sentiment::{self, Classifier, parameters};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// In how many steps the learning rate rises.
    #[arg(long, default_value_t = 6)]
    warmup_steps: u64,
}

fn optimizer(model: &Classifier, arguments: &Arguments) -> Result<AdamWScheduleFree> {
    let config = AdamWScheduleFreeConfig {
        lr: arguments.sentiment.lr,
        warmup_steps: arguments.warmup_steps,
        ..Default::default()
    };
    AdamWScheduleFree::new(parameters(model), config)
}
