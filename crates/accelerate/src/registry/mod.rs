//! What an accelerator prepared, as long as it exists: the one list that everything is derived from.

mod model;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::checkpoint::Checkpointable;
use crate::data::LoaderControl;
use crate::optim::{LearningRates, Optimizer, Scheduler};
use crate::parallel::{DataParallel, ShardedModel, Strategy};

pub(crate) use self::model::ModelHandle;

/// Everything prepared that still exists, in the order in which it was prepared.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) models: Prepared<ModelHandle>,
    pub(crate) optimizers: Prepared<RefCell<dyn Optimizer>>,
    pub(crate) schedulers: Prepared<RefCell<dyn Scheduler>>,
    pub(crate) loaders: Prepared<dyn LoaderControl>,
    custom: RefCell<Vec<Rc<RefCell<dyn Checkpointable>>>>,
}

impl Registry {
    /// What averages the gradients of each model over ranks.
    pub(crate) fn data_parallel(&self) -> Vec<Rc<DataParallel>> {
        let models = self.models.alive().into_iter();
        models
            .filter_map(|model| model.gradients().data_parallel().cloned())
            .collect()
    }

    /// What trains each model on several ranks.
    pub(crate) fn strategies(&self) -> Vec<Strategy> {
        let models = self.models.alive().into_iter();
        models
            .filter_map(|model| model.gradients().strategy().cloned())
            .collect()
    }

    /// The shards of each model that is cut into such.
    pub(crate) fn sharded(&self) -> Vec<Rc<ShardedModel>> {
        let models = self.models.alive().into_iter();
        models
            .filter_map(|model| model.gradients().sharded().cloned())
            .collect()
    }

    /// The learning rates of each optimizer, through which schedules find theirs.
    pub(crate) fn learning_rates(&self) -> Vec<LearningRates> {
        let optimizers = self.optimizers.alive().into_iter();
        optimizers
            .map(|optimizer| optimizer.borrow().learning_rates().clone())
            .collect()
    }

    pub(crate) fn add_custom(&self, object: Rc<RefCell<dyn Checkpointable>>) {
        self.custom.borrow_mut().push(object);
    }

    /// What the program registered for its checkpoints.
    pub(crate) fn custom(&self) -> Vec<Rc<RefCell<dyn Checkpointable>>> {
        self.custom.borrow().clone()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.models.clear();
        self.optimizers.clear();
        self.schedulers.clear();
        self.loaders.clear();
        self.custom.borrow_mut().clear();
    }
}

/// Handles on things of one kind that do not keep them alive.
pub(crate) struct Prepared<T: ?Sized>(RefCell<Vec<Weak<T>>>);

impl<T: ?Sized> Default for Prepared<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T: ?Sized> Prepared<T> {
    /// Adds one, and forgets those that are gone.
    pub(crate) fn add(&self, one: Weak<T>) {
        let mut all = self.0.borrow_mut();
        all.retain(|known| known.strong_count() > 0);
        all.push(one);
    }

    /// Those that still exist.
    pub(crate) fn alive(&self) -> Vec<Rc<T>> {
        self.0.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}
