//! Ranks that keep calling their models until all of them have finished.

use accelerate::collectives::{Reduction, reduce};
use accelerate::{PartialState, Result};
use tch::Tensor;

use super::session::Session;

/// What ties the steps of several ranks together, where they are.
#[derive(Clone, Copy)]
pub(super) struct Synced<'a>(Option<&'a PartialState>);

impl<'a> Synced<'a> {
    pub(super) fn new(state: Option<&'a PartialState>) -> Self {
        Self(state.filter(|state| state.num_processes() > 1))
    }

    /// Before a step of this rank: tells the others that there is one.
    pub(super) fn go_on(self) -> Result<()> {
        self.busy_ranks(true).map(|_| ())
    }

    /// Once this rank has finished: runs its model as often as others still run theirs.
    ///
    /// `newest` is what the model would read next, `[rows, 1]`; what it says is not looked at.
    pub(super) fn wait(self, session: &Session<'_>, newest: &Tensor) -> Result<()> {
        while self.busy_ranks(false)? > 0 {
            session.idle(newest)?;
        }
        Ok(())
    }

    /// How many ranks go on; 0 where ranks have nothing to do with each other.
    fn busy_ranks(self, busy: bool) -> Result<i64> {
        let Some(state) = self.0 else {
            return Ok(0);
        };
        let own = Tensor::f_from_slice(&[i64::from(busy)])?.f_to_device(state.device())?;
        Ok(reduce(state, own, Reduction::Sum)?.f_int64_value(&[0])?)
    }
}
