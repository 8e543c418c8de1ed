//! Local SGD: processes step on their own gradients, and every few steps their parameters are
//! averaged. It needs less communication, and no larger batches as accumulation does.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::num::NonZeroUsize;

use accelerate::tch::{Kind, Tensor};
use accelerate::{Accelerator, Result};
use clap::Args;

use crate::sentiment::{self, Classifier, parameters};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// Over how many batches gradients are accumulated.
    #[arg(long, default_value = "1")]
    gradient_accumulation_steps: NonZeroUsize,
    /// After how many steps parameters are averaged.
    #[arg(long, default_value = "8")]
    local_sgd_steps: NonZeroUsize,
}

/// How far apart the models of the processes are: the spread of the sums of their parameters.
///
/// # Collective
/// Every rank calls this.
fn apart(accelerator: &Accelerator, model: &Classifier) -> Result<f64> {
    let sums = parameters(model).into_iter();
    let sums = sums.map(|p| Ok(p.f_detach()?.f_sum(Kind::Double)?));
    let sum = Tensor::f_stack(&sums.collect::<Result<Vec<_>>>()?, 0)?.f_sum(Kind::Double)?;
    let all = accelerator.gather(sum.f_reshape([1])?)?;
    Ok(all.f_max()?.f_sub(&all.f_min()?)?.f_double_value(&[])?)
}
