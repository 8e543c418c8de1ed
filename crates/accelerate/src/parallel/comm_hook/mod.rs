//! How gradients travel between ranks.

mod bucket;
mod power_sgd;

use std::fmt;
use std::sync::Arc;

use accelerate_torch::{BoxError, Future, ProcessGroup, ReduceOp, Reducer};
use tch::{Kind, Tensor};

use crate::Result;

pub use bucket::GradientBucket;
pub(crate) use power_sgd::Memory;
pub(super) use power_sgd::SharedMemory;
pub use power_sgd::{CompressionStats, PowerSgdOptions};
use power_sgd::{Layout, PowerSgd};

/// How gradients travel.
///
/// # Source
/// `accelerate.utils.DDPCommunicationHookType`, with the state options inside the hook
/// that has them.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum CommHook {
    /// As they are.
    #[default]
    No,
    /// As float16.
    Fp16,
    /// As bfloat16.
    Bf16,
    /// Each large enough gradient as the product of two thin matrices.
    ///
    /// What it remembers from step to step belongs to what
    /// [`Accelerator::save_state`](crate::Accelerator::save_state) saves, on each rank.
    PowerSgd(PowerSgdOptions),
    /// Each bucket, as one square matrix, as the product of two thin matrices. Faster and
    /// much less exact than [`PowerSgd`](Self::PowerSgd).
    BatchedPowerSgd(PowerSgdOptions),
    /// As a function of your own sends them.
    Custom(CustomHook),
}

impl CommHook {
    /// A hook of your own: it gets the ranks and a bucket of this rank's gradients, and
    /// answers a future of the buffer with the **average** over the ranks.
    ///
    /// It runs inside the backward pass, once per bucket and in the same order on every
    /// rank; each model that is prepared calls the same function.
    ///
    /// ```
    /// use accelerate::parallel::{CommHook, ReduceOp};
    ///
    /// // The plain average, made by hand.
    /// let hook = CommHook::custom(|group, bucket| {
    ///     let share = bucket.buffer()?.f_div_scalar_(i64::try_from(group.size())?)?;
    ///     Ok(group.all_reduce_async(&share, ReduceOp::Sum)?.future()?)
    /// });
    /// assert_ne!(hook, CommHook::No);
    /// ```
    ///
    /// # Source
    /// `DistributedDataParallel.register_comm_hook`.
    pub fn custom(
        run: impl Fn(&ProcessGroup, &GradientBucket<'_>) -> Result<Future, BoxError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self::Custom(CustomHook { run: Arc::new(run) })
    }

    /// Checks the settings that can be checked before ranks talk.
    pub(super) fn validate(&self) -> Result<()> {
        match self {
            Self::PowerSgd(options) | Self::BatchedPowerSgd(options) => options.validate(),
            _ => Ok(()),
        }
    }
}

/// In which precision the hook itself works and sends.
///
/// Without a hook it changes nothing.
///
/// # Source
/// `comm_wrapper` of `accelerate.DistributedDataParallelKwargs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CommWrapper {
    /// In the gradients' own.
    #[default]
    No,
    /// In float16.
    Fp16,
    /// In bfloat16.
    Bf16,
}

type CustomFn =
    dyn Fn(&ProcessGroup, &GradientBucket<'_>) -> Result<Future, BoxError> + Send + Sync;

/// A hook of your own; [`CommHook::custom`] makes it. Clones share one function.
#[derive(Clone)]
pub struct CustomHook {
    run: Arc<CustomFn>,
}

impl fmt::Debug for CustomHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomHook").finish_non_exhaustive()
    }
}

impl PartialEq for CustomHook {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run)
    }
}

/// What runs for each bucket.
type Run = Box<dyn FnMut(&GradientBucket<'_>) -> Result<Future, BoxError> + Send>;

/// Lets a reducer send its buckets this way; answers what PowerSGD remembers.
///
/// # Collective
/// Every rank of the group calls this: PowerSGD talks over a group of its own.
pub(super) fn install(
    reducer: &mut Reducer,
    group: &ProcessGroup,
    hook: &CommHook,
    wrapper: CommWrapper,
) -> Result<Option<SharedMemory>> {
    let mut memory = None;
    let mut power_sgd = |options: &PowerSgdOptions, layout| -> Result<Run> {
        let hook = PowerSgd::new(group, *options, layout)?;
        memory = Some(hook.memory());
        Ok(Box::new(move |bucket| hook.run(bucket)))
    };
    let ranks = group.clone();
    let run: Run = match hook {
        CommHook::No => return Ok(None),
        CommHook::Fp16 => Box::new(move |bucket| average_as(&ranks, bucket, Kind::Half)),
        CommHook::Bf16 => Box::new(move |bucket| average_as(&ranks, bucket, Kind::BFloat16)),
        CommHook::PowerSgd(options) => power_sgd(options, Layout::PerGradient)?,
        CommHook::BatchedPowerSgd(options) => power_sgd(options, Layout::WholeBucket)?,
        CommHook::Custom(hook) => {
            let run = Arc::clone(&hook.run);
            Box::new(move |bucket| run(&ranks, bucket))
        }
    };
    let mut run = match wrapper {
        CommWrapper::No => run,
        CommWrapper::Fp16 => wrapped(run, Kind::Half),
        CommWrapper::Bf16 => wrapped(run, Kind::BFloat16),
    };
    reducer.set_hook(move |bucket| run(&GradientBucket::new(bucket)))?;
    Ok(memory)
}

/// The hook works on a copy in another precision; the result goes back into the buffer.
fn wrapped(mut run: Run, kind: Kind) -> Run {
    Box::new(move |bucket| {
        let buffer = bucket.buffer()?;
        let done = run(&bucket.to_kind(kind)?)?;
        Ok(done.then(move |result| copied_back(buffer, &result))?)
    })
}

/// The average over ranks, computed and sent in `kind`.
fn average_as(
    group: &ProcessGroup,
    bucket: &GradientBucket<'_>,
    kind: Kind,
) -> Result<Future, BoxError> {
    let buffer = bucket.buffer()?;
    let share = bucket.to_kind(kind)?.buffer()?;
    let done = average(group, &share)?;
    Ok(done.then(move |result| copied_back(buffer, &result))?)
}

/// The average over ranks, in the buffer itself: each rank's share first, then their sum.
fn average(group: &ProcessGroup, buffer: &Tensor) -> Result<Future, BoxError> {
    let ranks = i64::try_from(group.size())?;
    let share = tch::no_grad(|| buffer.shallow_clone().f_div_scalar_(ranks))?;
    Ok(group.all_reduce_async(&share, ReduceOp::Sum)?.future()?)
}

fn copied_back(mut buffer: Tensor, result: &Tensor) -> Result<Tensor, BoxError> {
    tch::no_grad(|| buffer.f_copy_(result))?;
    Ok(buffer)
}
