use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::batch_sampler::IndexBatches;
use super::loader_control::LoaderControl;
use super::loader_state::{DataLoaderState, GeneratorState, GeneratorStates, LoaderShape};
use super::sampler::Sampler;
use crate::{Error, Result};

/// Where the loops over one prepared loader stand, whatever its data.
pub(super) struct ShardPosition {
    pub(super) batches: Rc<dyn IndexBatches>,
    pub(super) generator: Option<Arc<Generator>>,
    /// The switch of the sharded batches, if they are sharded.
    pub(super) even_batches: Option<Rc<Cell<bool>>>,
    /// How many samples a last round has that repeats batches of varying sizes.
    pub(super) once_in_last_round: Rc<Cell<Option<usize>>>,
    /// How many batches of the undivided loader make one step of all ranks.
    pub(super) batches_per_step: NonZeroUsize,
    pub(super) shape: LoaderShape,
    pub(super) epoch: Cell<u64>,
    /// The loop that began last, until it comes to its end.
    pub(super) running: RefCell<Option<RunningLoop>>,
    /// What was loaded and no loop has taken up yet.
    pub(super) loaded: RefCell<Option<DataLoaderState>>,
}

pub(super) struct RunningLoop {
    /// How many batches of the undivided loader were handed out, passed over included.
    pub(super) handed_out: Rc<Cell<usize>>,
    /// What the epoch was drawn from.
    pub(super) drawn_from: GeneratorStates,
}

impl ShardPosition {
    pub(super) fn sampler(&self) -> Option<&dyn Sampler> {
        self.batches.sampler()
    }

    fn sampler_generator(&self) -> Option<&Generator> {
        self.sampler()?.generator()
    }

    /// The loader's generator, unless it is the sampler's too.
    fn loader_generator(&self) -> Option<&Generator> {
        let own = self.generator.as_deref()?;
        let same = self
            .sampler_generator()
            .is_some_and(|sampler| std::ptr::eq(sampler, own));
        (!same).then_some(own)
    }

    pub(super) fn set_epoch(&self, epoch: u64) {
        if epoch != self.epoch.replace(epoch) {
            self.running.replace(None);
            let loaded = self.loaded.take();
            self.loaded
                .replace(loaded.map(|state| state.in_other_epoch(epoch)));
        }
        self.batches.set_epoch(epoch);
    }

    /// What the next epoch is drawn from; with the global generator, as it begins.
    pub(super) fn generators(&self, begins: bool) -> Result<GeneratorStates> {
        let state = |generator: Option<&Generator>| generator.map(GeneratorState::of).transpose();
        let global = begins.then(Generator::default_cpu).transpose()?;
        Ok(GeneratorStates {
            sampler: state(self.sampler_generator())?,
            loader: state(self.loader_generator())?,
            global: state(global.as_ref())?,
        })
    }

    pub(super) fn restore(&self, states: &GeneratorStates) -> Result<()> {
        if let Some(sampler) = self.sampler() {
            sampler.choose_generator(states.sampler.is_some())?;
        }
        if let (Some(own), Some(state)) = (self.loader_generator(), &states.loader) {
            state.restore(own)?;
        }
        if let (Some(sampler), Some(state)) = (self.sampler(), &states.sampler)
            && let Some(own) = sampler.generator()
        {
            state.restore(own)?;
            sampler.generator_synchronized()?;
        }
        Ok(())
    }

    fn mismatches(&self, state: &DataLoaderState) -> Result<Vec<String>> {
        let mut problems = self.shape.differences(state.shape);
        let has_generator = match self.sampler() {
            // It takes what it is given.
            Some(sampler) if sampler.may_choose_generator() => state.generators.sampler.is_some(),
            _ => self.sampler_generator().is_some(),
        };
        let own = [
            ("sampler", has_generator),
            ("loader", self.loader_generator().is_some()),
        ];
        problems.extend(state.generators.mismatches(own)?);
        if state.stream.is_some() {
            problems.push("expected a place in an index, found one in a stream".to_owned());
        }
        Ok(problems)
    }
}

impl LoaderControl for ShardPosition {
    fn state_dict(&self) -> Result<DataLoaderState> {
        if let Some(loaded) = &*self.loaded.borrow() {
            return Ok(loaded.clone());
        }
        let (epoch, shape) = (self.epoch.get(), self.shape);
        Ok(match &*self.running.borrow() {
            Some(running) => DataLoaderState {
                epoch,
                in_epoch: true,
                batches: running.handed_out.get(),
                shape,
                generators: running.drawn_from.clone(),
                stream: None,
            },
            None => DataLoaderState {
                epoch,
                in_epoch: false,
                batches: 0,
                shape,
                generators: self.generators(false)?,
                stream: None,
            },
        })
    }

    fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        let state = state.clone().in_batches_of(self.shape);
        let problems = self.mismatches(&state)?;
        if !problems.is_empty() {
            return Err(Error::StateMismatch {
                target: "data loader",
                problems,
            });
        }
        self.running.replace(None);
        self.epoch.set(state.epoch);
        self.loaded.replace(Some(state));
        Ok(())
    }

    fn even_batches(&self) -> Option<bool> {
        self.even_batches.as_ref().map(|switch| switch.get())
    }

    fn set_even_batches(&self, even_batches: bool) {
        if let Some(switch) = &self.even_batches {
            switch.set(even_batches);
        }
    }
}
