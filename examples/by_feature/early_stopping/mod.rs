//! Early stopping: training ends when the loss no longer falls. Each process sees another loss,
//! so they have to agree, or the ones that go on would wait for the others.

pub(crate) mod accelerated;
pub(crate) mod plain;

use clap::Args;

use crate::sentiment;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// After how many steps in a row without a better loss training stops.
    #[arg(long, default_value_t = 5)]
    patience: u32,
    /// By how much a loss has to be better than the best one.
    #[arg(long, default_value_t = 0.0)]
    min_delta: f64,
}

/// When to stop.
struct EarlyStopping {
    best: f64,
    waited: u32,
    patience: u32,
    min_delta: f64,
}

impl EarlyStopping {
    fn new(arguments: &Arguments) -> Self {
        Self {
            best: f64::INFINITY,
            waited: 0,
            patience: arguments.patience,
            min_delta: arguments.min_delta,
        }
    }

    /// Whether the loss of this step is one too many that is no better.
    fn should_stop(&mut self, loss: f64) -> bool {
        if loss < self.best - self.min_delta {
            self.best = loss;
            self.waited = 0;
        } else {
            self.waited += 1;
        }
        self.waited >= self.patience
    }
}
