use accelerate_torch::{autograd, foreach};

use super::dummy_optim::DummyOptim;
use super::group::ParamGroups;
use super::rates::LearningRates;
use super::state_dict::StateDict;
use crate::offload::DiskFolder;
use crate::{Error, Result};

/// Updates parameters from their gradients.
pub trait Optimizer {
    /// The optimizer's name, for messages.
    fn name(&self) -> &'static str;

    /// The parameters that are updated.
    fn groups(&self) -> &ParamGroups;

    /// Whether every number of a parameter is updated by itself, whatever the others are. A rank can
    /// then update a part of a parameter, which is what sharding needs.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// The stand-in that this is, if it is one: what is prepared in its place makes the steps.
    fn stand_in(&self) -> Option<&DummyOptim> {
        None
    }

    /// Updates every parameter that has a gradient.
    ///
    /// # Errors
    /// Those of the kernels.
    fn step(&mut self) -> Result<()>;

    /// The learning rate of each group, shared with schedules.
    fn learning_rates(&self) -> &LearningRates {
        self.groups().learning_rates()
    }

    /// Drops every gradient, so that its memory is free until the next backward pass.
    ///
    /// # Errors
    /// Those of the boundary to libtorch.
    fn zero_grad(&mut self) -> Result<()> {
        self.groups()
            .iter()
            .try_for_each(|parameter| Ok(autograd::set_grad(parameter, None)?))
    }

    /// Fills every gradient with zeros and keeps its memory.
    ///
    /// # Errors
    /// Those of the boundary to libtorch.
    fn zero_grad_in_place(&mut self) -> Result<()> {
        let mut gradients = Vec::new();
        for parameter in self.groups().iter() {
            gradients.extend(autograd::grad(parameter)?);
        }
        tch::no_grad(|| Ok(foreach::zero_(&gradients)?))
    }

    /// Gets ready for training. Only optimizers that evaluate with other weights than they
    /// train with do anything here, such as [`AdamWScheduleFree`](super::AdamWScheduleFree).
    ///
    /// # Errors
    /// Those of the kernels.
    ///
    /// # Source
    /// `AcceleratedOptimizer.train`, which is there for such optimizers too.
    fn train(&mut self) -> Result<()> {
        Ok(())
    }

    /// Puts the weights into the parameters that are meant for evaluation and for saving;
    /// see [`train`](Self::train).
    ///
    /// # Errors
    /// Those of the kernels.
    fn eval(&mut self) -> Result<()> {
        Ok(())
    }

    /// Everything that the next step depends on besides parameters and
    /// gradients: settings of each group, and state of each parameter.
    ///
    /// Its tensors are the live ones, not copies: the next step changes them.
    ///
    /// # Errors
    /// Those of the boundary to libtorch.
    fn state_dict(&self) -> Result<StateDict>;

    /// Goes on from `state`, which is copied. On an error nothing has changed.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) with everything that does not fit.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;

    /// Keeps the state of parameters in a file from now on: that which there is and that which comes.
    ///
    /// A step then goes over parameters a part at a time, and reads the next and writes the last
    /// meanwhile, so that it takes no more memory than a few parts. It computes the same numbers.
    /// Parameters must have their final sizes: a model in shards is prepared before.
    ///
    /// # Errors
    /// [`Error::Argument`] for an optimizer that has no such state or cannot be cut into parts, or
    /// parameters that are not on the CPU; a folder that cannot be written to, or has no room.
    ///
    /// # Source
    /// The optimizer swapper of DeepSpeed's ZeRO-Infinity.
    fn keep_state_on_disk(&mut self, _folder: &DiskFolder) -> Result<()> {
        Err(no_state_on_disk(self.name()))
    }
}

/// Of an optimizer whose state cannot be on disk.
pub(super) fn no_state_on_disk(name: &str) -> Error {
    Error::Argument {
        operation: "optimizer state on disk",
        expected:
            "an optimizer of this library that updates each number by itself, as `AdamW` does"
                .to_owned(),
        found: format!("`{name}`"),
    }
}

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn groups(&self) -> &ParamGroups {
        (**self).groups()
    }

    fn is_elementwise(&self) -> bool {
        (**self).is_elementwise()
    }

    fn stand_in(&self) -> Option<&DummyOptim> {
        (**self).stand_in()
    }

    fn step(&mut self) -> Result<()> {
        (**self).step()
    }

    fn zero_grad(&mut self) -> Result<()> {
        (**self).zero_grad()
    }

    fn zero_grad_in_place(&mut self) -> Result<()> {
        (**self).zero_grad_in_place()
    }

    fn train(&mut self) -> Result<()> {
        (**self).train()
    }

    fn eval(&mut self) -> Result<()> {
        (**self).eval()
    }

    fn state_dict(&self) -> Result<StateDict> {
        (**self).state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        (**self).load_state_dict(state)
    }

    fn keep_state_on_disk(&mut self, folder: &DiskFolder) -> Result<()> {
        (**self).keep_state_on_disk(folder)
    }
}
