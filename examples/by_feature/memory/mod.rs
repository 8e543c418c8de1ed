//! A batch size that fits into memory: where it does not, training begins again with half of it.

pub(crate) mod accelerated;
pub(crate) mod plain;

use accelerate::Result;
use accelerate::tch::{Device, Kind, Tensor};
use clap::Args;

use crate::sentiment;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) sentiment: sentiment::Arguments,
    /// Act as if no more samples than these fitted into memory.
    #[arg(long, value_name = "SAMPLES")]
    pub(crate) memory_for: Option<usize>,
}

/// Runs out of memory where a batch is larger than is to be acted: asks for more than any
/// machine has.
pub(crate) fn occupy(arguments: &Arguments, batch_size: usize) -> Result<()> {
    if arguments.memory_for.is_some_and(|most| batch_size > most) {
        let _ = Tensor::f_empty([1i64 << 46], (Kind::Double, Device::Cpu))?;
    }
    Ok(())
}
