use std::any::Any;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};

use accelerate_torch::ReduceOp;
use tch::Tensor;

use super::out_of_memory::says_so;
use super::{empty_cuda_cache, is_out_of_memory};
use crate::collectives::{Operation, Watch};
use crate::state::PartialState;
use crate::{Error, Result};

/// A batch size that is made smaller until it fits.
///
/// Made by [`find_executable_batch_size`].
pub struct BatchSizeSearch {
    starting: usize,
    size: usize,
    floor: usize,
    reduce: Box<dyn FnMut(usize) -> usize>,
    state: Option<PartialState>,
}

/// Looks for a batch size that fits into memory, beginning with `starting_batch_size`.
///
/// [`run`](BatchSizeSearch::run) calls a closure with the size; when memory is exhausted,
/// it is called again with half of it, and so on. A closure that needs another way down
/// gets it by [`reduce_with`](BatchSizeSearch::reduce_with).
///
/// ```
/// use accelerate::memory::find_executable_batch_size;
/// use accelerate::tch::{Device, Kind, Tensor};
///
/// let mut search = find_executable_batch_size(1 << 47);
/// let (size, _) = search.run(|batch_size| {
///     let rows = i64::try_from(batch_size).unwrap_or(i64::MAX);
///     // A size that no machine has fails, and is halved.
///     if rows > 64 {
///         Tensor::f_empty([rows.max(1 << 46)], (Kind::Double, Device::Cpu))?;
///     }
///     Ok((batch_size, ()))
/// })?;
/// assert_eq!(size, 64);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `accelerate.utils.find_executable_batch_size`. Differs: ranks agree on the size, it is
/// halved as documented and not multiplied by 0.9, each try is logged, a floor can be set,
/// and out-of-memory panics count as well as errors.
#[must_use]
pub fn find_executable_batch_size(starting_batch_size: usize) -> BatchSizeSearch {
    BatchSizeSearch {
        starting: starting_batch_size,
        size: starting_batch_size,
        floor: 1,
        reduce: Box::new(|size| size / 2),
        state: None,
    }
}

impl BatchSizeSearch {
    /// Makes a size smaller by this instead of halving it. It is asked on the ranks that ran
    /// out of memory; what is not smaller counts as smaller by one.
    #[must_use]
    pub fn reduce_with(mut self, reduce: impl FnMut(usize) -> usize + 'static) -> Self {
        self.reduce = Box::new(reduce);
        self
    }

    /// Gives up below this size, instead of below 1.
    #[must_use]
    pub fn floor(mut self, floor: usize) -> Self {
        self.floor = floor.max(1);
        self
    }

    /// Agrees among the ranks of this state, instead of the process's.
    pub(crate) fn on(mut self, state: PartialState) -> Self {
        self.state = Some(state);
        self
    }

    /// The size of the next try; after a run that succeeded, the size that fits.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.size
    }

    /// Calls `function` with smaller and smaller sizes until it does not run out of memory.
    ///
    /// The size is kept: another run begins with it. `function` is to drop what it made
    /// when it fails, as locals do.
    ///
    /// After every try the ranks exchange how it went. If one of them ran out of memory,
    /// all try again, with the smallest size that any of them comes to.
    ///
    /// # Collective
    /// Every rank calls this, with the same function. A rank that runs out of memory
    /// between two operations of the group (or all of them at once) is healed. One that
    /// runs out while the others wait for it *inside* an operation is not: they wait for a
    /// partner that no longer comes, until the group's timeout. Where that can happen,
    /// begin with a size that differs little from what fits.
    ///
    /// # Errors
    /// [`Error::NoExecutableBatchSize`] when the floor is reached; any other error of
    /// `function`; [`Error::OtherRankFailed`] if another rank had one.
    ///
    /// # Panics
    /// If `function` panics for another reason than memory, after the other ranks were told.
    pub fn run<R>(&mut self, mut function: impl FnMut(usize) -> Result<R>) -> Result<R> {
        loop {
            if self.size < self.floor || self.size == 0 {
                return Err(Error::NoExecutableBatchSize {
                    starting: self.starting,
                    floor: self.floor,
                });
            }
            tracing::info!(batch_size = self.size, "trying batch size {}", self.size);
            let size = self.size;
            let tried = Try::of(panic::catch_unwind(AssertUnwindSafe(|| function(size))));
            let smaller = match tried {
                Try::OutOfMemory => (self.reduce)(size).min(size - 1),
                _ => usize::MAX,
            };
            match (self.agree(tried.code(), smaller), tried) {
                (_, Try::Failed(error)) => return Err(error),
                (_, Try::Panicked(cause)) => panic::resume_unwind(cause),
                (Err(error), _) => return Err(error),
                (Ok(Verdict::Done), Try::Done(done)) => return Ok(done),
                (Ok(Verdict::Failed { rank }), _) => return Err(Error::OtherRankFailed { rank }),
                (Ok(Verdict::Smaller { rank, size: next }), tried) => {
                    drop(tried);
                    tracing::warn!(
                        batch_size = size,
                        next,
                        rank,
                        "rank {rank} ran out of memory with batch size {size}; trying {next}"
                    );
                    self.size = next;
                    empty_cuda_cache()?;
                }
                (Ok(Verdict::Done), Try::OutOfMemory) => {
                    self.size = smaller;
                }
            }
        }
    }

    /// The outcome of all ranks, from that of each.
    fn agree(&self, code: i64, smaller: usize) -> Result<Verdict> {
        let state = self.state.clone().or_else(PartialState::current);
        let Some(state) = state.filter(PartialState::use_distributed) else {
            return Ok(Verdict::of(code, 0, smaller));
        };
        let operation = Operation::new("find_executable_batch_size");
        let Some(watch) = Watch::begin(&state, &operation)? else {
            return Ok(Verdict::of(code, 0, smaller));
        };
        let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let world = number(state.num_processes());
        // The worst outcome with its rank, and the smallest size, in one reduction.
        let own = [
            code * world + number(state.process_index()),
            -number(smaller),
        ];
        let all = Tensor::from_slice(&own).f_to_device(watch.device())?;
        watch.run(|group| Ok(group.all_reduce(&all, ReduceOp::Max)?))?;
        let (worst, size) = (all.f_int64_value(&[0])?, -all.f_int64_value(&[1])?);
        let count = |value: i64| usize::try_from(value).unwrap_or(0);
        Ok(Verdict::of(
            worst / world,
            count(worst % world),
            count(size),
        ))
    }
}

impl fmt::Debug for BatchSizeSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSizeSearch")
            .field("starting", &self.starting)
            .field("size", &self.size)
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}

/// How one try went here.
enum Try<R> {
    Done(R),
    OutOfMemory,
    Failed(Error),
    Panicked(Box<dyn Any + Send>),
}

impl<R> Try<R> {
    fn of(outcome: std::thread::Result<Result<R>>) -> Self {
        match outcome {
            Ok(Ok(done)) => Self::Done(done),
            Ok(Err(error)) if is_out_of_memory(&error) => Self::OutOfMemory,
            Ok(Err(error)) => Self::Failed(error),
            Err(cause) if panic_text(&*cause).is_some_and(says_so) => Self::OutOfMemory,
            Err(cause) => Self::Panicked(cause),
        }
    }

    /// The larger, the worse.
    fn code(&self) -> i64 {
        match self {
            Self::Done(_) => 0,
            Self::OutOfMemory => 1,
            Self::Failed(_) | Self::Panicked(_) => 2,
        }
    }
}

fn panic_text(cause: &(dyn Any + Send)) -> Option<&str> {
    let owned = cause.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| cause.downcast_ref::<&str>().copied())
}

/// How it went on all ranks together.
enum Verdict {
    Done,
    Smaller { rank: usize, size: usize },
    Failed { rank: usize },
}

impl Verdict {
    fn of(code: i64, rank: usize, size: usize) -> Self {
        match code {
            0 => Self::Done,
            1 => Self::Smaller { rank, size },
            _ => Self::Failed { rank },
        }
    }
}
