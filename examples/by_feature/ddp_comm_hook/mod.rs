//! Communication hooks: gradients travel in half precision, or as products of thin matrices.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::num::NonZeroU64;

use accelerate::parallel::{CommHook, CommWrapper, PowerSgdOptions};
use clap::{Args, ValueEnum};

use crate::sentiment;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// How gradients travel.
    #[arg(long, value_enum, default_value = "fp16")]
    hook: Hook,
    /// In which precision the hook itself works and sends.
    #[arg(long, value_enum, default_value = "no")]
    wrapper: Wrapper,
    /// The number of columns of PowerSGD's thin matrices.
    #[arg(long, default_value = "1")]
    matrix_approximation_rank: NonZeroU64,
    /// The number of steps before PowerSGD begins.
    #[arg(long, default_value_t = 10)]
    start_power_sgd_iter: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Hook {
    Fp16,
    Bf16,
    PowerSgd,
    BatchedPowerSgd,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Wrapper {
    No,
    Fp16,
    Bf16,
}

impl Arguments {
    fn comm_hook(&self) -> CommHook {
        let options = PowerSgdOptions {
            matrix_approximation_rank: self.matrix_approximation_rank,
            start_power_sgd_iter: self.start_power_sgd_iter,
            ..Default::default()
        };
        match self.hook {
            Hook::Fp16 => CommHook::Fp16,
            Hook::Bf16 => CommHook::Bf16,
            Hook::PowerSgd => CommHook::PowerSgd(options),
            Hook::BatchedPowerSgd => CommHook::BatchedPowerSgd(options),
        }
    }

    fn comm_wrapper(&self) -> CommWrapper {
        match self.wrapper {
            Wrapper::No => CommWrapper::No,
            Wrapper::Fp16 => CommWrapper::Fp16,
            Wrapper::Bf16 => CommWrapper::Bf16,
        }
    }
}
