//! What a computation depends on besides its inputs: random numbers and autocast.

use accelerate_torch::Generator;
use accelerate_torch::autocast::{self, AutocastGuard, AutocastState};
use accelerate_torch::device::{Place, place};
use tch::{Device, Tensor};

use crate::Result;

/// Random generators and autocast of this thread, as they were at one time.
pub(super) struct Surroundings {
    random: Vec<(Device, Tensor)>,
    autocast: Vec<(Device, AutocastState)>,
}

impl Surroundings {
    /// Those that count for computations on the CPU, and where `tensor` is.
    pub(super) fn around(tensor: Option<&Tensor>) -> Result<Self> {
        let mut devices = vec![Device::Cpu];
        match tensor.map(place).transpose()? {
            Some(Place::Cuda(index)) => devices.push(Device::Cuda(index)),
            Some(Place::Mps) => devices.push(Device::Mps),
            _ => {}
        }
        let autocast = devices.iter();
        let autocast = autocast.map(|&device| Ok((device, autocast::state(device)?)));
        Ok(Self {
            autocast: autocast.collect::<Result<_>>()?,
            random: random(devices.into_iter())?,
        })
    }

    /// Runs `run` without recording anything, and without keeping casts of weights, which would be
    /// found by computations that are recorded.
    pub(super) fn without_graph<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let active = self.autocast.iter().filter(|(_, state)| state.enabled);
        let uncached = active.map(|(device, state)| (*device, state.without_cache()));
        let _autocast = Guards::enter(uncached)?;
        tch::no_grad(run)
    }

    /// Runs `run` as it would have run then; random numbers go on where they are now.
    pub(super) fn again<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let now = random(self.random.iter().map(|(device, _)| *device))?;
        set_random(&self.random)?;
        let done = {
            let _autocast = Guards::enter(self.autocast.iter().copied())?;
            run()
        };
        set_random(&now)?;
        done
    }
}

fn random(devices: impl Iterator<Item = Device>) -> Result<Vec<(Device, Tensor)>> {
    let states = devices.map(|device| Ok((device, Generator::default_of(device)?.state()?)));
    states.collect()
}

fn set_random(states: &[(Device, Tensor)]) -> Result<()> {
    for (device, state) in states {
        Generator::default_of(*device)?.set_state(state)?;
    }
    Ok(())
}

/// Autocast of several devices, which ends in the reverse order.
struct Guards(Vec<AutocastGuard>);

impl Guards {
    fn enter(states: impl Iterator<Item = (Device, AutocastState)>) -> Result<Self> {
        let mut guards = Self(Vec::new());
        for (device, state) in states {
            guards.0.push(AutocastGuard::set(device, state)?);
        }
        Ok(guards)
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        while let Some(guard) = self.0.pop() {
            drop(guard);
        }
    }
}
