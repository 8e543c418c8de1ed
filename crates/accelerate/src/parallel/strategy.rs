//! What trains a prepared model on several ranks, and backward passes through such models.

use std::rc::Rc;
use std::time::Duration;

use accelerate_torch as torch;
use accelerate_torch::autograd::{self, BackwardOptions};
use tch::Tensor;

use super::ddp::unused;
use super::{DataParallel, ShardedModel};
use crate::collectives::{Site, explain};
use crate::nn::is_any_checkpointed;
use crate::state::PartialState;
use crate::{Error, Result};

/// One of the ways to train a model on several ranks.
#[derive(Debug, Clone)]
pub(crate) enum Strategy {
    /// Every rank has the whole model.
    Data(Rc<DataParallel>),
    /// Every rank has a part of it.
    Sharded(Rc<ShardedModel>),
}

impl Strategy {
    /// Turns the exchange of gradients on or off; answers what it was.
    pub(crate) fn set_sync_gradients(&self, sync: bool) -> bool {
        match self {
            Self::Data(model) => model.set_sync_gradients(sync),
            Self::Sharded(model) => model.set_sync_gradients(sync),
        }
    }

    /// Lets the next backward pass exchange gradients although its forward pass did not expect it.
    pub(crate) fn expect_backward(&self) -> Result<()> {
        match self {
            Self::Data(model) => model.expect_backward(),
            Self::Sharded(_) => Ok(()),
        }
    }

    fn takes_part(&self) -> bool {
        match self {
            Self::Data(model) => model.takes_part(),
            // Only when it is over it is known what it was about.
            Self::Sharded(_) => true,
        }
    }

    /// What is left to do behind a backward pass that ran.
    fn finish_backward(&self) -> Result<()> {
        match self {
            Self::Data(_) => Ok(()),
            Self::Sharded(model) => model.finish_backward(),
        }
    }

    /// What is to be told behind a backward pass before anything of it is finished.
    fn join_backward(&self) -> Result<()> {
        match self {
            Self::Data(_) => Ok(()),
            Self::Sharded(model) => model.join_backward(),
        }
    }

    fn is_agreed(&self) -> Result<bool> {
        match self {
            Self::Data(_) => Ok(true),
            Self::Sharded(model) => model.is_agreed(),
        }
    }

    fn abandon_backward(&self) {
        if let Self::Sharded(model) = self {
            model.abandon_backward();
        }
    }
}

/// Runs a backward pass, which exchanges the gradients of those `models` that wait for one.
///
/// # Collective
/// Where one of them does, every rank calls this.
///
/// # Errors
/// A loss without a graph; [`Error::UnusedParameters`] if other ranks have no gradient for a
/// parameter of which this one has; [`Error::CollectiveIncomplete`] if others are missing.
pub(crate) fn backward(
    state: &PartialState,
    site: Site,
    models: &[Strategy],
    loss: &Tensor,
) -> Result<()> {
    let losses = [loss.shallow_clone()];
    let options = BackwardOptions {
        // What a module computes again, it computes where it lives.
        on_calling_thread: is_any_checkpointed(),
        ..BackwardOptions::default()
    };
    // All of them are asked: each forgets that it waited.
    let waited = models.iter().filter(|model| model.takes_part());
    let exchanges = waited.count() > 0;
    let is_sharded = models
        .iter()
        .any(|model| matches!(model, Strategy::Sharded(_)));
    let Some(group) = state.process_group().filter(|_| exchanges) else {
        let ran = autograd::backward(&losses, None, options);
        return alone(models, is_sharded, ran);
    };
    state.counted("backward", site, |call| {
        let ran =
            autograd::backward_of_reducers(&losses, options).map_err(|error| match is_sharded {
                true => cause(error),
                false => error.into(),
            });
        let done = ran.and_then(|()| finish(models));
        done.map_err(|error| {
            models.iter().for_each(Strategy::abandon_backward);
            let explained = match error {
                Error::Torch(error) => explain(state, Some(call), error),
                other => other,
            };
            match explained {
                Error::CollectiveIncomplete { report, source } => {
                    match unused::of_others(state, group, call) {
                        Some(unused) => unused,
                        None => Error::CollectiveIncomplete { report, source },
                    }
                }
                other => other,
            }
        })
    })
}

/// Ends the backward pass of all models, each as soon as the ranks agree about it.
///
/// Not in a fixed order: another rank may still be in the backward pass of one of them, and go on only
/// with this rank's part of it.
fn finish(models: &[Strategy]) -> Result<()> {
    models.iter().try_for_each(Strategy::join_backward)?;
    let mut left: Vec<&Strategy> = models.iter().collect();
    while left.len() > 1 {
        let mut waiting = Vec::new();
        for model in left.drain(..) {
            match model.is_agreed()? {
                true => model.finish_backward()?,
                false => waiting.push(model),
            }
        }
        left = waiting;
        if left.len() > 1 {
            let _blocked = torch::Blocked::begin();
            std::thread::sleep(AGREEMENT_PAUSE);
        }
    }
    left.into_iter().try_for_each(Strategy::finish_backward)
}

/// How long a rank waits before it asks again whether all have told.
const AGREEMENT_PAUSE: Duration = Duration::from_micros(100);

/// The end of a backward pass that exchanged nothing: also a process by itself may have a model in
/// shards, whose parameters are on disk.
fn alone(models: &[Strategy], is_sharded: bool, ran: torch::Result<()>) -> Result<()> {
    let ran = ran.map_err(|error| match is_sharded {
        true => cause(error),
        false => error.into(),
    });
    let done = ran.and_then(|()| finish(models));
    if done.is_err() {
        models.iter().for_each(Strategy::abandon_backward);
    }
    done
}

/// The failure of a collective inside of a hook, as one of the hook's caller.
fn cause(error: torch::Error) -> Error {
    let torch::Error::Callback { operation, source } = error else {
        return error.into();
    };
    match source.downcast::<Error>() {
        Ok(own) => match *own {
            Error::Torch(error) => error.into(),
            other => {
                let source = Box::new(other);
                torch::Error::Callback { operation, source }.into()
            }
        },
        Err(source) => torch::Error::Callback { operation, source }.into(),
    }
}
