use accelerate_torch::ReduceOp;
use tch::Tensor;

use super::PartialState;
use crate::collectives::{Operation, Watch};
use crate::{Error, Result};

/// A turn that some ranks take before others.
///
/// Whoever is first has the turn until [`end`](Self::end); the others get theirs when
/// all that are first have ended it. A turn that is dropped without being ended, as by
/// an error or a panic, lets the others go as well, but with an error.
///
/// ```
/// # let state = accelerate::PartialState::new()?;
/// let turn = state.main_process_first()?;
/// // Download or prepare something that the others will find.
/// turn.end()?;
///
/// // The same, where the work is one closure:
/// let words = state.main_process_first()?.run(|| Ok(vec!["a", "b"]))?;
/// # assert_eq!(words.len(), 2);
/// # Ok::<(), accelerate::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the others wait until the turn is ended, and fail if it is dropped"]
pub struct ProcessTurn {
    /// Whom the others wait for, while it is this process.
    first: Option<PartialState>,
}

impl ProcessTurn {
    #[track_caller]
    pub(super) fn begin(state: &PartialState, first: bool) -> Result<Self> {
        if first {
            return Ok(Self {
                first: Some(state.clone()),
            });
        }
        agree(state, None)?;
        Ok(Self { first: None })
    }

    /// Ends the turn and says whether the others were reached.
    ///
    /// # Errors
    /// [`Error::TurnFailed`] if another rank that was first did not do its work; as
    /// [`PartialState::wait_for_everyone`].
    #[track_caller]
    pub fn end(mut self) -> Result<()> {
        match self.first.take() {
            Some(state) => agree(&state, None),
            None => Ok(()),
        }
    }

    /// Runs `action` in this turn, and ends it.
    ///
    /// # Errors
    /// That of `action`, which the others learn of; as [`end`](Self::end).
    #[track_caller]
    pub fn run<R>(self, action: impl FnOnce() -> Result<R>) -> Result<R> {
        let done = action()?;
        self.end()?;
        Ok(done)
    }
}

impl Drop for ProcessTurn {
    fn drop(&mut self) {
        let Some(state) = self.first.take() else {
            return;
        };
        let rank = state.process_index();
        match agree(&state, Some(rank)) {
            Ok(()) | Err(Error::TurnFailed { .. }) => {}
            Err(error) => {
                tracing::error!(%error, "the other processes could not be told that this one failed");
            }
        }
    }
}

/// The one meeting of a turn: everybody learns which first rank failed, if one did.
#[track_caller]
fn agree(state: &PartialState, failed: Option<usize>) -> Result<()> {
    let Some(watch) = Watch::begin(state, &Operation::new("main_process_first"))? else {
        return Ok(());
    };
    let number = failed.map_or(0, |rank| i64::try_from(rank + 1).unwrap_or(i64::MAX));
    let flag = Tensor::from_slice(&[number]).f_to_device(watch.device())?;
    watch.run(|group| Ok(group.all_reduce(&flag, ReduceOp::Max)?))?;
    match usize::try_from(flag.f_int64_value(&[0])?) {
        Ok(number) if number > 0 => Err(Error::TurnFailed { rank: number - 1 }),
        _ => Ok(()),
    }
}
