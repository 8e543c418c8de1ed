//! What a training does, step by step, for `accelerate verify-resume`.
//!
//! Nothing is recorded unless `ACCELERATE_RECORD_STEPS` names a folder. Then each rank writes one
//! [`StepRecord`] at each step of a prepared optimizer: digests of the batches, the losses, the
//! states of the random generators, the weights and the optimizer.

mod digest;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};

use accelerate_formats::step_records::{BatchRecord, Digests, StepRecord, StepWriter};
use accelerate_plan::env::{Environment, LEAVE_AT_STEP, RECORD_STEPS};
use tch::{Kind, Tensor};

use crate::nn::{all_buffers, all_parameters};
use crate::optim::{Optimizer, StateDict, StateValue};
use crate::precision::GradScaler;
use crate::registry::ModelHandle;
use crate::tree::{Tree, leaves};
use crate::{Error, Result};

/// The record of one process: a shared handle.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: RefCell<StepWriter>,
    steps: Cell<u64>,
    /// The step behind which the program leaves.
    leave_at: Option<u64>,
    models: RefCell<Vec<Weak<ModelHandle>>>,
    batches: RefCell<Vec<Batch>>,
    losses: RefCell<Vec<u64>>,
    /// Whether the losses since the last step are sums over samples.
    are_sums: Cell<bool>,
}

/// A batch since the last step.
#[derive(Debug)]
struct Batch {
    /// The loop over a loader that it was handed out in.
    of_loop: u64,
    is_trained_on: bool,
    record: BatchRecord,
}

/// What a loop says of a batch that it hands out.
#[derive(Debug, Default)]
pub(crate) struct HandedOut {
    pub(crate) of_loop: u64,
    pub(crate) epoch: u64,
    /// The samples by number, where the loader knows.
    pub(crate) indices: Option<Vec<usize>>,
    /// Of the last batch: how many samples of all ranks are no repetition.
    pub(crate) remainder: Option<usize>,
}

impl Recording {
    /// The record that the environment asks for, if it does.
    pub(crate) fn asked_for(environment: &Environment, rank: usize) -> Result<Option<Self>> {
        let Some(folder) = environment.get(&RECORD_STEPS)? else {
            return Ok(None);
        };
        let leave_at = environment.get(&LEAVE_AT_STEP)?;
        let file = StepWriter::create(Path::new(&folder), rank).map_err(Error::data)?;
        Ok(Some(Self {
            shared: Rc::new(Shared {
                file: RefCell::new(file),
                steps: Cell::new(0),
                leave_at: leave_at.map(|step| step.get() as u64),
                models: RefCell::default(),
                batches: RefCell::default(),
                losses: RefCell::default(),
                are_sums: Cell::default(),
            }),
        }))
    }

    /// Records the weights of `model` from now on.
    pub(crate) fn add_model(&self, model: &Rc<ModelHandle>) {
        self.shared.models.borrow_mut().push(Rc::downgrade(model));
    }

    /// Whether the program is to leave behind this step.
    pub(crate) fn leaves_here(&self) -> bool {
        let done = self.shared.steps.get();
        self.shared.leave_at.is_some_and(|step| done >= step)
    }

    /// A batch was handed out.
    pub(crate) fn batch(&self, batch: &dyn Tree, out: HandedOut) -> Result<()> {
        let number = |index: usize| index as u64;
        let record = BatchRecord {
            epoch: out.epoch,
            indices: out
                .indices
                .map(|indices| indices.into_iter().map(number).collect()),
            rows: digest::rows(&leaves(batch)?)?,
            remainder: out.remainder.filter(|&samples| samples > 0).map(number),
            generators: digest::generators()?,
        };
        self.shared.batches.borrow_mut().push(Batch {
            of_loop: out.of_loop,
            is_trained_on: false,
            record,
        });
        Ok(())
    }

    /// A loss, a mean or a sum over samples, goes backward while the loops that `is_open` knows are
    /// running: it is of their batches.
    pub(crate) fn loss(
        &self,
        loss: &Tensor,
        is_sum: bool,
        is_open: impl Fn(u64) -> bool,
    ) -> Result<()> {
        self.shared.are_sums.set(is_sum);
        let value = loss
            .f_detach()?
            .f_to_kind(Kind::Double)?
            .f_sum(Kind::Double)?;
        let bits = value.f_double_value(&[])?.to_bits();
        self.shared.losses.borrow_mut().push(bits);
        for batch in &mut *self.shared.batches.borrow_mut() {
            batch.is_trained_on |= is_open(batch.of_loop);
        }
        Ok(())
    }

    /// An optimizer has stepped, or left its step out.
    pub(crate) fn step(
        &self,
        optimizer: &dyn Optimizer,
        scaler: Option<&GradScaler>,
    ) -> Result<()> {
        let shared = &self.shared;
        let batches = shared.batches.take();
        let (trained, others): (Vec<_>, Vec<_>) =
            batches.into_iter().partition(|batch| batch.is_trained_on);
        let records = |batches: Vec<Batch>| batches.into_iter().map(|batch| batch.record).collect();
        shared.steps.set(shared.steps.get() + 1);
        let record = StepRecord {
            step: shared.steps.get(),
            batches: records(trained),
            other_batches: records(others),
            losses: shared.losses.take(),
            losses_are_sums: shared.are_sums.get(),
            generators: digest::generators()?,
            weights: self.weights(optimizer)?,
            optimizer: entries(&optimizer.state_dict()?)?,
            loss_scale: match scaler {
                Some(scaler) => entries(&scaler.state_dict()?)?,
                None => Digests::new(),
            },
        };
        let mut file = shared.file.borrow_mut();
        file.push(&record).map_err(Error::data)
    }

    /// Those of the prepared models, or else of the optimizer.
    fn weights(&self, optimizer: &dyn Optimizer) -> Result<Digests> {
        let models = self.shared.models.borrow();
        let models: Vec<Rc<ModelHandle>> = models.iter().filter_map(Weak::upgrade).collect();
        let mut found = Digests::new();
        for (number, model) in models.iter().enumerate() {
            let name = |name: String| match number {
                0 => name,
                _ => format!("model {number}: {name}"),
            };
            for (own, parameter) in all_parameters(&**model) {
                found.push((name(own), digest::tensor(parameter.tensor())?));
            }
            for (own, buffer) in all_buffers(&**model) {
                found.push((name(own), digest::tensor(buffer.tensor())?));
            }
        }
        if models.is_empty() {
            for (number, tensor) in optimizer.groups().iter().enumerate() {
                found.push((format!("parameter {number}"), digest::tensor(tensor)?));
            }
        }
        Ok(found)
    }
}

fn entries(state: &StateDict) -> Result<Digests> {
    let entry = |(name, value): (&str, &StateValue)| {
        let text = match value {
            StateValue::Tensor(tensor) => digest::tensor(tensor)?,
            StateValue::Float(number) => number.to_string(),
            StateValue::Int(count) => count.to_string(),
            StateValue::Bool(flag) => flag.to_string(),
        };
        Ok((name.to_owned(), text))
    };
    state.iter().map(entry).collect()
}
