use std::panic::Location;

use accelerate_torch::{Backend, Generator};
use tch::Device;

use super::shard_options::SyncGenerator;
use crate::collectives::Site;
use crate::state::PartialState;
use crate::{Error, Result};

/// A random generator that ranks can have in one state.
///
/// # Source
/// `accelerate.utils.RNGType`, as far as libtorch has generators for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RngType {
    /// The one that operations on the CPU draw from.
    Torch,
    /// The one that operations on this process's GPU draw from.
    Cuda,
    /// The one that the order of a shuffled loader is drawn from.
    Generator,
}

/// Sets the generators of `kinds` to the state they have on rank 0.
///
/// `generator` is the one that [`RngType::Generator`] means.
///
/// # Collective
/// Every rank calls this with the same kinds.
///
/// # Errors
/// [`Error::Argument`] if a kind has no generator here; what a rank that is gone
/// reports.
///
/// # Source
/// `accelerate.utils.synchronize_rng_states`.
pub fn synchronize_rng_states(
    state: &PartialState,
    kinds: &[RngType],
    generator: Option<&Generator>,
) -> Result<()> {
    for &kind in kinds {
        match (kind, state.device(), generator) {
            (RngType::Torch, ..) => from_rank_0(state, &Generator::default_cpu()?)?,
            (RngType::Cuda, device @ Device::Cuda(_), _) => {
                from_rank_0(state, &Generator::default_of(device)?)?;
            }
            (RngType::Generator, _, Some(own)) => from_rank_0(state, own)?,
            (RngType::Cuda, device, _) => {
                return Err(missing("a process on a GPU", format!("one on {device:?}")));
            }
            (RngType::Generator, _, None) => {
                return Err(missing("a generator", "none".to_owned()));
            }
        }
    }
    Ok(())
}

fn missing(expected: &str, found: String) -> Error {
    Error::Argument {
        operation: "synchronize_rng_states",
        expected: expected.to_owned(),
        found,
    }
}

/// As [`synchronize_rng_states`] for one generator, to be kept by a loader.
pub(crate) fn generator_sync(state: &PartialState) -> SyncGenerator {
    let state = state.clone();
    Box::new(move |generator| from_rank_0(&state, generator))
}

fn from_rank_0(state: &PartialState, generator: &Generator) -> Result<()> {
    let Some(group) = state.process_group() else {
        return Ok(());
    };
    let own = generator.state()?;
    // A group that has NCCL alone carries nothing that is on the CPU.
    let wire = match state.backend() {
        Some(Backend::Nccl) => own.f_to_device(state.device())?,
        _ => own,
    };
    let site = Site::Code(Location::caller());
    state.counted("synchronize_rng_states", site, |_| {
        Ok(group.broadcast(&wire, 0)?)
    })?;
    Ok(generator.set_state(&wire.f_to_device(Device::Cpu)?)?)
}
