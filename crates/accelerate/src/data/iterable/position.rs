//! Where the loops over one prepared stream stand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use accelerate_torch::Generator;

use super::IterableDataset;
use super::loader::IterableDataLoader;
use super::rank_stream::RankStream;
use super::turns::{StreamProgress, Turns};
use crate::data::collate::Collate;
use crate::data::loader_control::LoaderControl;
use crate::data::loader_state::{DataLoaderState, GeneratorState, GeneratorStates, LoaderShape};
use crate::{Error, Result};

/// A rank's stream, and where the loops over it stand.
pub(super) struct StreamPosition<D, C> {
    pub(super) loader: IterableDataLoader<RankStream<D>, C>,
    pub(super) shape: LoaderShape,
    /// How many batches of the undivided loader make one step of all ranks.
    pub(super) batches_per_step: usize,
    /// The number of ranks, where each reads a part of its own.
    pub(super) own_part_of: Option<usize>,
    pub(super) epoch: Cell<u64>,
    /// The loop that began last, until it comes to its end.
    pub(super) running: RefCell<Option<RunningStream>>,
    /// What was loaded and no loop has taken up yet.
    pub(super) loaded: RefCell<Option<DataLoaderState>>,
}

/// What one loop was handed out, shared with the loop.
#[derive(Debug)]
pub(super) struct HandedOut {
    pub(super) steps: usize,
    pub(super) progress: StreamProgress,
}

pub(super) struct RunningStream {
    pub(super) handed_out: Rc<RefCell<HandedOut>>,
    /// What the epoch was drawn from.
    pub(super) drawn_from: GeneratorStates,
}

impl<D: IterableDataset, C: Collate<D::Item>> StreamPosition<D, C> {
    fn dataset_generator(&self) -> Option<&Generator> {
        self.loader.dataset().generator()
    }

    /// The start of an epoch, read in `parts` parts.
    pub(super) fn fresh(&self, parts: usize) -> HandedOut {
        HandedOut {
            steps: 0,
            progress: StreamProgress {
                own_part_of: self.own_part_of,
                read: Turns::begin(parts),
                again: None,
            },
        }
    }

    /// What a loop was handed out that goes on where `state` was taken.
    pub(super) fn resumed(&self, state: &DataLoaderState) -> HandedOut {
        let steps = state.batches / self.batches_per_step;
        let mut handed_out = self.fresh(1);
        if let Some(progress) = &state.stream {
            handed_out.progress = progress.clone();
        }
        // One reader of a stream that ranks share: what it was handed out follows from the steps.
        if self.own_part_of.is_none() && handed_out.progress.read.parts.len() == 1 {
            handed_out.progress.read.parts = vec![steps];
        }
        handed_out.steps = steps;
        handed_out
    }

    /// What the next epoch is drawn from; with the global generator, as it begins.
    pub(super) fn generators(&self, begins: bool) -> Result<GeneratorStates> {
        let state = |generator: Option<&Generator>| generator.map(GeneratorState::of).transpose();
        let global = begins.then(Generator::default_cpu).transpose()?;
        Ok(GeneratorStates {
            sampler: state(self.dataset_generator())?,
            loader: state(self.loader.generator.as_deref())?,
            global: state(global.as_ref())?,
        })
    }

    pub(super) fn restore(&self, states: &GeneratorStates) -> Result<()> {
        let pairs = [
            (self.loader.generator.as_deref(), &states.loader),
            (self.dataset_generator(), &states.sampler),
        ];
        for (own, state) in pairs {
            if let (Some(own), Some(state)) = (own, state) {
                state.restore(own)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_epoch(&self, epoch: u64) {
        if epoch != self.epoch.replace(epoch) {
            self.running.replace(None);
            let loaded = self.loaded.take();
            self.loaded
                .replace(loaded.map(|state| state.in_other_epoch(epoch)));
        }
        self.loader.set_epoch(epoch);
    }

    fn mismatches(&self, state: &DataLoaderState) -> Result<Vec<String>> {
        let mut problems = self.shape.differences(state.shape);
        let own = [
            ("data set", self.dataset_generator().is_some()),
            ("loader", self.loader.generator.is_some()),
        ];
        problems.extend(state.generators.mismatches(own)?);
        let Some(progress) = &state.stream else {
            problems.push("expected a place in a stream, found one in an index".to_owned());
            return Ok(problems);
        };
        if !progress.is_sound() {
            problems.push("expected a place in a stream, found other numbers".to_owned());
        }
        let of = |ranks: Option<usize>| match ranks {
            None => "the stream that ranks share".to_owned(),
            Some(ranks) => format!("this rank's of {ranks} parts"),
        };
        if progress.own_part_of != self.own_part_of && state.in_epoch {
            problems.push(format!(
                "expected a place in {}, found one in {}",
                of(self.own_part_of),
                of(progress.own_part_of)
            ));
        }
        if state.in_epoch && self.own_part_of.is_none() {
            let parts = progress.read.parts.len();
            let is_slices = matches!(self.loader.dataset(), RankStream::Slices(_));
            if is_slices && parts > 1 {
                problems.push(format!(
                    "expected a stream read as a whole, found {parts} parts that workers read"
                ));
            }
            if !state.batches.is_multiple_of(self.batches_per_step) {
                problems.push(format!(
                    "expected a number of batches that {} ranks share evenly, found {}; go on with \
                     another number of ranks, or from the start of an epoch",
                    self.batches_per_step, state.batches
                ));
            }
        }
        Ok(problems)
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> LoaderControl for StreamPosition<D, C> {
    fn state_dict(&self) -> Result<DataLoaderState> {
        if let Some(loaded) = &*self.loaded.borrow() {
            return Ok(loaded.clone());
        }
        let running = self.running.borrow();
        let fresh = self.fresh(self.loader.readers());
        let (steps, progress) = match &*running {
            Some(running) => {
                let handed_out = running.handed_out.borrow();
                (handed_out.steps, handed_out.progress.clone())
            }
            None => (fresh.steps, fresh.progress),
        };
        Ok(DataLoaderState {
            epoch: self.epoch.get(),
            in_epoch: running.is_some(),
            batches: steps * self.batches_per_step,
            shape: self.shape,
            generators: match &*running {
                Some(running) => running.drawn_from.clone(),
                None => self.generators(false)?,
            },
            stream: Some(progress),
        })
    }

    fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        let problems = self.mismatches(state)?;
        if !problems.is_empty() {
            return Err(Error::StateMismatch {
                target: "data loader",
                problems,
            });
        }
        self.running.replace(None);
        self.epoch.set(state.epoch);
        self.loaded.replace(Some(state.clone()));
        Ok(())
    }
}
