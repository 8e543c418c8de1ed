//! Seeds for everything that draws random numbers.

use accelerate_torch::{Generator, device};
use tch::Device;

pub use accelerate_torch::deterministic::{Algorithms, Determinism};

use crate::state::PartialState;
use crate::{Error, Result};

/// How [`set_seed`] seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeedOptions {
    /// Adds the rank to the seed, so that ranks draw different numbers. Leave it off where
    /// ranks must agree, as on the order of a data set.
    pub device_specific: bool,
    /// Takes only algorithms that give the same bits in every run, from now on, in the whole
    /// process: an operation that has none fails. Some are slower.
    ///
    /// [`Determinism`] has the finer choices, such as warnings instead of failures, and the
    /// way back. Matrix products on a GPU also need `CUBLAS_WORKSPACE_CONFIG=:4096:8` in the
    /// environment; libtorch says so where it is missing.
    pub deterministic: bool,
}

/// What [`set_seed`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seeded {
    /// The seed of this rank.
    pub seed: u64,
    /// The devices whose generators now start from it.
    pub devices: Vec<Device>,
}

/// Seeds libtorch's generators: the CPU's and that of every device this process can use.
///
/// Everything in this library that draws numbers (weights, dropout, shuffling) draws from
/// them. Generators of your own and of other crates are yours to seed, with
/// [`Seeded::seed`].
///
/// ```
/// let seeded = accelerate::random::set_seed(42, Default::default())?;
/// assert_eq!(seeded.seed, 42);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a device-specific seed before the process knows its rank.
///
/// # Source
/// `accelerate.utils.set_seed`. As there, `deterministic` turns deterministic algorithms on and
/// its absence does not turn them off.
pub fn set_seed(seed: u64, options: SeedOptions) -> Result<Seeded> {
    set_seed_as(PartialState::current().as_ref(), seed, options)
}

/// As [`set_seed`], for a process that knows its rank.
pub(crate) fn set_seed_as(
    state: Option<&PartialState>,
    seed: u64,
    options: SeedOptions,
) -> Result<Seeded> {
    let seed = match (options.device_specific, state) {
        (false, _) => seed,
        (true, Some(state)) => seed.wrapping_add(state.process_index() as u64),
        (true, None) => {
            return Err(Error::Argument {
                operation: "device-specific seed",
                expected: "an `Accelerator` that was made before".to_owned(),
                found: "a process that does not know its rank".to_owned(),
            });
        }
    };
    let devices = devices();
    for &device in &devices {
        Generator::default_of(device)?.manual_seed(seed)?;
    }
    if options.deterministic {
        Determinism::current()?
            .with_algorithms(Algorithms::Deterministic)
            .apply()?;
    }
    Ok(Seeded { seed, devices })
}

fn devices() -> Vec<Device> {
    let apple = (device::count(Device::Mps) > 0).then_some(Device::Mps);
    let gpus = cuda_devices().into_iter();
    [Device::Cpu].into_iter().chain(gpus).chain(apple).collect()
}

/// Every CUDA device that there is.
pub(crate) fn cuda_devices() -> Vec<Device> {
    (0..device::count(Device::Cuda(0)))
        .map(Device::Cuda)
        .collect()
}
