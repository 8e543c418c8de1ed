//! Where the division for the mean over ranks happens, if a plan says so.

use accelerate_plan::parallel::Average;
use accelerate_torch::{BoxError, ReduceOp};
use tch::Tensor;

use super::DistributedDataParallelKwargs;
use crate::parallel::comm_hook::CommHook;

impl DistributedDataParallelKwargs {
    /// The same settings, with gradients of `ranks` ranks divided as a plan says. A hook that is there
    /// averages in its own way.
    ///
    /// # Source
    /// `prescale_gradients` and `gradient_predivide_factor` of DeepSpeed, without ZeRO. Differs: without
    /// either, gradients are divided before the sum, as data parallelism does, and not behind it.
    pub(crate) fn averaged_by(mut self, average: Average, ranks: usize) -> Self {
        let Average::Before(factor) = average else {
            return self;
        };
        let (before, after) = average.factors(ranks, false);
        // By the number of ranks and nothing behind the sum: as it is done anyway.
        if factor == ranks as f64 || self.comm_hook != CommHook::No {
            return self;
        }
        self.comm_hook = CommHook::custom(move |group, bucket| {
            let share = divide(&bucket.buffer()?, before)?;
            let sum = group.all_reduce_async(&share, ReduceOp::Sum)?.future()?;
            Ok(sum.then(move |sum| divide(&sum, after))?)
        });
        self
    }
}

fn divide(tensor: &Tensor, by: f64) -> Result<Tensor, BoxError> {
    Ok(tch::no_grad(|| tensor.shallow_clone().f_div_scalar_(by))?)
}
