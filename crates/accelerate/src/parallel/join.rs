//! Training with a different number of batches on each rank.

use accelerate_torch::{ProcessGroup, ReduceOp};
use tch::{Device, Kind, Tensor};

use crate::Result;

/// Something whose collectives a rank that has finished can mirror.
///
/// Inside a join, the first of all things, each time before its other collectives, counts
/// the ranks that go on. Ranks that have finished do the same collectives without values.
///
/// # Source
/// `torch.distributed.algorithms.Joinable` and `JoinHook`.
pub trait Joinable {
    /// The ranks that it talks to; none for a process by itself, where a join does nothing.
    fn group(&self) -> Option<&ProcessGroup>;

    /// Where it keeps the small values that it sends.
    fn device(&self) -> Device;

    /// A join begins. The `first` thing counts the ranks that go on.
    fn enter_join(&self, first: bool);

    /// The join is over.
    fn leave_join(&self);

    /// Mirrors the collectives of one step of the ranks that go on.
    ///
    /// # Errors
    /// What the backend reports.
    fn mirror_step(&self) -> Result<()>;

    /// All ranks have finished; all take the state of one that was the `last` to.
    ///
    /// # Errors
    /// What the backend reports.
    fn take_last_finished(&self, last: bool) -> Result<()>;
}

/// After how many steps that others go on the log says so.
const LONG_WAIT: u64 = 1000;

/// Runs a loop over batches whose number may differ over ranks.
///
/// A rank that has finished stands in for itself until the last one has: it brings zeros
/// to every reduction, so gradients are still divided by the number of **all** ranks. In
/// the end every rank has the model of the rank that finished last; of several, of the
/// highest.
///
/// Every step of `body` calls the joinables in their order, and the backward pass of one
/// comes before the forward pass of the next.
///
/// # Collective
/// Every rank calls this with the same joinables.
///
/// # Errors
/// What `body` returns; the others then fail when this process ends, or at the timeout.
/// What the backend reports.
///
/// # Source
/// `torch.distributed.algorithms.Join` with `divide_by_initial_world_size`. Differs: a
/// forward pass without gradients is not taken for one that reduces.
pub fn join_uneven_inputs<T>(
    joinables: &[&dyn Joinable],
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(first) = joinables.iter().find(|joinable| joinable.group().is_some()) else {
        return body();
    };
    let _membership = Membership::enter(joinables);
    let value = body()?;
    let mut steps = 0;
    while count_active(*first, false)? > 0 {
        steps += 1;
        if steps == LONG_WAIT {
            tracing::warn!(
                "this rank has at least {LONG_WAIT} batches less than others; \
                 the time until they finish is lost to it"
            );
        }
        for joinable in joinables {
            joinable.mirror_step()?;
        }
    }
    for joinable in joinables {
        joinable.take_last_finished(steps == 0)?;
    }
    Ok(value)
}

/// The number of ranks that go on.
pub(super) fn count_active(joinable: &dyn Joinable, active: bool) -> Result<i64> {
    let Some(group) = joinable.group() else {
        return Ok(0);
    };
    let own = f64::from(u8::from(active));
    let count = Tensor::f_full([1], own, (Kind::Float, joinable.device()))?;
    group.all_reduce(&count, ReduceOp::Sum)?;
    // A float32 counts ranks exactly up to 16 million.
    Ok(count.f_double_value(&[0])? as i64)
}

/// The time between entering and leaving, whichever way it is left.
struct Membership<'a>(&'a [&'a dyn Joinable]);

impl<'a> Membership<'a> {
    fn enter(joinables: &'a [&'a dyn Joinable]) -> Self {
        let mut first = true;
        for joinable in joinables {
            joinable.enter_join(first);
            first &= joinable.group().is_none();
        }
        Self(joinables)
    }
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        for joinable in self.0 {
            joinable.leave_join();
        }
    }
}
