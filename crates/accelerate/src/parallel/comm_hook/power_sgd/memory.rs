//! What PowerSGD remembers from one step to the next, and how it is saved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tch::{Device, Tensor};

use super::legacy_random::LegacyRandom;
use super::{CompressionStats, Layout, PowerSgdOptions};
use crate::optim::{StateDict, StateValue};
use crate::{Error, Result};

/// All that the next step depends on besides the gradients.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The number of backward passes whose last bucket came.
    pub(super) iteration: u64,
    pub(super) random: LegacyRandom,
    /// Buckets that have thin matrices of the step before.
    pub(super) started: BTreeSet<usize>,
    /// From which pass on the log says again how much is saved.
    pub(super) next_report: u64,
    pub(super) stats: CompressionStats,
    /// What compression lost of each bucket in the last step.
    pub(super) errors: BTreeMap<usize, Tensor>,
    /// The right thin matrices of each bucket, one after the other.
    pub(super) rights: BTreeMap<usize, Tensor>,
}

impl Memory {
    fn new(random_seed: u32) -> Self {
        Self {
            iteration: 0,
            random: LegacyRandom::new(random_seed),
            started: BTreeSet::new(),
            next_report: 0,
            stats: CompressionStats::default(),
            errors: BTreeMap::new(),
            rights: BTreeMap::new(),
        }
    }

    /// Whether nothing of it depends on how the buckets are arranged.
    pub(in crate::parallel) fn is_new(&self) -> bool {
        self.iteration == 0
    }

    fn read_numbered(&mut self, name: &str, value: &StateValue, device: Device) -> Result<bool> {
        let Some((kind, bucket)) = name.split_once('.') else {
            return Ok(false);
        };
        let Ok(bucket) = bucket.parse::<usize>() else {
            return Ok(false);
        };
        match (kind, value) {
            ("started", StateValue::Bool(true)) => {
                self.started.insert(bucket);
            }
            ("error", StateValue::Tensor(error)) => {
                self.errors.insert(bucket, copy_on(device, error)?);
            }
            ("right", StateValue::Tensor(right)) => {
                self.rights.insert(bucket, copy_on(device, right)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A handle on the memory of one model's hook. The backward pass, the thread that averages and
/// whoever saves share it; nobody holds it while ranks are waited for.
#[derive(Debug, Clone)]
pub(in crate::parallel) struct SharedMemory {
    memory: Arc<Mutex<Memory>>,
    options: PowerSgdOptions,
    layout: Layout,
}

impl SharedMemory {
    pub(super) fn new(options: PowerSgdOptions, layout: Layout) -> Self {
        Self {
            memory: Arc::new(Mutex::new(Memory::new(options.random_seed))),
            options,
            layout,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::parallel) fn stats(&self) -> CompressionStats {
        self.lock().stats
    }

    /// Goes on from `memory`, or from the beginning.
    pub(in crate::parallel) fn replace(&self, memory: Option<Memory>) {
        *self.lock() = memory.unwrap_or_else(|| Memory::new(self.options.random_seed));
    }

    /// The settings that decide the shapes of what is remembered.
    fn settings(&self) -> [(&'static str, StateValue); 3] {
        let rank = count(self.options.matrix_approximation_rank.get());
        [
            ("matrix_approximation_rank", rank),
            (
                "min_compression_rate",
                StateValue::Float(self.options.min_compression_rate),
            ),
            (
                "whole_bucket",
                StateValue::Bool(self.layout == Layout::WholeBucket),
            ),
        ]
    }

    /// Everything that has to be saved on this rank, and what it has to fit: the settings, and what
    /// the model adds to them.
    ///
    /// Call it between steps.
    pub(in crate::parallel) fn state_dict(&self, of_model: &[(&str, u64)]) -> Result<StateDict> {
        let mut state = StateDict::new();
        for (name, value) in self.settings() {
            state.push(name, value);
        }
        for (name, value) in of_model {
            state.push(*name, count(*value));
        }
        let memory = self.lock();
        let words = Tensor::f_from_slice(&memory.random.words())?;
        state.push("random", StateValue::Tensor(words));
        let stats = memory.stats;
        for (name, value) in [
            ("iteration", memory.iteration),
            ("next_report", memory.next_report),
            ("numel_before_compression", stats.numel_before_compression),
            ("numel_after_compression", stats.numel_after_compression),
        ] {
            state.push(name, count(value));
        }
        for bucket in &memory.started {
            state.push(format!("started.{bucket}"), StateValue::Bool(true));
        }
        for (kind, tensors) in [("error", &memory.errors), ("right", &memory.rights)] {
            for (bucket, tensor) in tensors {
                let tensor = StateValue::Tensor(tensor.shallow_clone());
                state.push(format!("{kind}.{bucket}"), tensor);
            }
        }
        Ok(state)
    }

    /// What was saved, with its tensors copied to `device`. Nothing changes yet.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] with everything that does not fit.
    pub(in crate::parallel) fn read(
        &self,
        state: &StateDict,
        of_model: &[(&str, u64)],
        device: Device,
    ) -> Result<Memory> {
        let mut problems = Vec::new();
        let mut compare = |name: &str, expected: &StateValue| {
            let (expected, found) = (text(Some(expected)), text(state.get(name)));
            if expected != found {
                problems.push(format!("`{name}`: expected {expected}, found {found}"));
            }
        };
        for (name, expected) in self.settings() {
            compare(name, &expected);
        }
        for (name, expected) in of_model {
            compare(name, &count(*expected));
        }
        let mut counted = |name: &str| match state.get(name) {
            Some(StateValue::Int(count)) if *count >= 0 => count.unsigned_abs(),
            other => {
                problems.push(format!("`{name}`: expected a count, found {}", text(other)));
                0
            }
        };
        let mut memory = Memory::new(self.options.random_seed);
        memory.iteration = counted("iteration");
        memory.next_report = counted("next_report");
        memory.stats = CompressionStats {
            numel_before_compression: counted("numel_before_compression"),
            numel_after_compression: counted("numel_after_compression"),
        };
        let random = match state.get("random") {
            Some(StateValue::Tensor(words)) => {
                LegacyRandom::from_words(&Vec::<i64>::try_from(words)?)
            }
            _ => None,
        };
        match random {
            Some(random) => memory.random = random,
            None => problems.push("`random`: expected the state of a generator".to_owned()),
        }
        let numbered = state.iter().filter(|(name, _)| name.contains('.'));
        for (name, value) in numbered {
            if !memory.read_numbered(name, value, device)? {
                problems.push(format!(
                    "`{name}` is unknown, or holds {}",
                    text(Some(value))
                ));
            }
        }
        if problems.is_empty() {
            return Ok(memory);
        }
        Err(Error::StateMismatch {
            target: "PowerSGD",
            problems,
        })
    }
}

fn count(value: u64) -> StateValue {
    StateValue::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn text(value: Option<&StateValue>) -> String {
    match value {
        Some(StateValue::Int(count)) => count.to_string(),
        Some(StateValue::Float(number)) => number.to_string(),
        Some(StateValue::Bool(flag)) => flag.to_string(),
        Some(StateValue::Tensor(_)) => "a tensor".to_owned(),
        None => "nothing".to_owned(),
    }
}

/// A copy that may be changed: what was read may lie in the file itself.
fn copy_on(device: Device, source: &Tensor) -> Result<Tensor> {
    let mut copy = Tensor::f_empty(source.size(), (source.f_kind()?, device))?;
    tch::no_grad(|| copy.f_copy_(source))?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered() -> SharedMemory {
        let shared = SharedMemory::new(PowerSgdOptions::default(), Layout::PerGradient);
        let mut memory = shared.lock();
        memory.iteration = 1003;
        memory.stats.numel_before_compression = 12;
        let _ = memory.random.below_a_billion();
        memory.started.insert(4);
        memory.errors.insert(4, Tensor::from_slice(&[1f32, -2.0]));
        memory.rights.insert(4, Tensor::from_slice(&[0.5f32]));
        drop(memory);
        shared
    }

    #[test]
    fn what_was_remembered_comes_back() {
        let shared = remembered();
        let state = shared.state_dict(&[("elements", 2)]).unwrap();
        let other = SharedMemory::new(PowerSgdOptions::default(), Layout::PerGradient);
        let read = other.read(&state, &[("elements", 2)], Device::Cpu).unwrap();
        assert!(!read.is_new());
        other.replace(Some(read));
        let (mut was, mut is) = (shared.lock(), other.lock());
        assert_eq!((is.iteration, is.stats), (1003, was.stats));
        assert_eq!(is.started, was.started);
        assert_eq!(is.errors[&4], was.errors[&4]);
        assert_eq!(is.rights[&4], was.rights[&4]);
        // Copies: the next step changes them in place.
        assert_ne!(is.rights[&4].data_ptr(), was.rights[&4].data_ptr());
        assert_eq!(is.random.below_a_billion(), was.random.below_a_billion());
        drop((was, is));
        other.replace(None);
        let begun_anew = other.lock();
        assert!(begun_anew.is_new() && begun_anew.errors.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut state = remembered().state_dict(&[("elements", 2)]).unwrap();
        state.push("right.x", StateValue::Bool(true));
        let options = PowerSgdOptions {
            min_compression_rate: 3.0,
            ..PowerSgdOptions::default()
        };
        let other = SharedMemory::new(options, Layout::WholeBucket);
        let error = other.read(&state, &[("elements", 3)], Device::Cpu);
        let Error::StateMismatch { problems, .. } = error.unwrap_err() else {
            panic!("another error")
        };
        assert_eq!(
            problems,
            [
                "`min_compression_rate`: expected 3, found 2",
                "`whole_bucket`: expected true, found false",
                "`elements`: expected 3, found 2",
                "`right.x` is unknown, or holds true",
            ]
        );
        let error = other.read(&StateDict::new(), &[], Device::Cpu).unwrap_err();
        assert!(error.to_string().contains("`random`: expected"), "{error}");
    }
}
