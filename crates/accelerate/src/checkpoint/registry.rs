//! What an accelerator prepared, as far as a checkpoint holds its state.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use accelerate_formats::Value;

use crate::Result;
use crate::accumulation::ModelId;
use crate::nn::{
    Buffer, Member, MemberMut, Module, ModuleState, Parameter, all_buffers, all_parameters,
};
use crate::optim::{Optimizer, Scheduler};

/// Something of the program's own that belongs to its checkpoints.
///
/// ```
/// use accelerate::checkpoint::{Checkpointable, Value};
///
/// #[derive(Default)]
/// struct BestAccuracy(f64);
///
/// impl Checkpointable for BestAccuracy {
///     fn state_dict(&self) -> accelerate::Result<Value> {
///         Ok(self.0.into())
///     }
///
///     fn load_state_dict(&mut self, state: &Value) -> accelerate::Result<()> {
///         self.0 = state.as_f64().unwrap_or_default();
///         Ok(())
///     }
/// }
/// ```
///
/// # Source
/// The `state_dict` and `load_state_dict` that `Accelerator.register_for_checkpointing` asks for.
pub trait Checkpointable {
    /// What is to be saved.
    ///
    /// # Errors
    /// Those of reading it.
    fn state_dict(&self) -> Result<Value>;

    /// Goes on from what was saved.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if it is something else.
    fn load_state_dict(&mut self, state: &Value) -> Result<()>;
}

/// Handles on the parameters and buffers of a prepared model, under their dotted names.
#[derive(Debug)]
pub(crate) struct ModelHandle {
    class: &'static str,
    id: ModelId,
    parameters: Vec<(String, Parameter)>,
    buffers: Vec<(String, Buffer)>,
}

impl ModelHandle {
    pub(crate) fn new(module: &dyn Module, id: ModelId) -> Self {
        let owned = |(name, tensor): (String, &Parameter)| (name, tensor.clone());
        Self {
            class: module.class_name(),
            id,
            parameters: all_parameters(module).into_iter().map(owned).collect(),
            buffers: all_buffers(module)
                .into_iter()
                .map(|(name, buffer)| (name, buffer.clone()))
                .collect(),
        }
    }

    pub(crate) fn id(&self) -> ModelId {
        self.id
    }
}

/// A flat view: everything is a direct member, under its dotted name.
impl Module for ModelHandle {
    fn class_name(&self) -> &'static str {
        self.class
    }

    fn state(&self) -> Option<&ModuleState> {
        None
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        for (name, parameter) in &self.parameters {
            visit(name, Member::Parameter(parameter));
        }
        for (name, buffer) in &self.buffers {
            visit(name, Member::Buffer(buffer));
        }
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        for (name, parameter) in &mut self.parameters {
            visit(name, MemberMut::Parameter(parameter));
        }
        for (name, buffer) in &mut self.buffers {
            visit(name, MemberMut::Buffer(buffer));
        }
    }
}

/// Everything prepared that still exists, in the order in which it was prepared.
#[derive(Default)]
pub(crate) struct Registry {
    models: RefCell<Vec<Weak<ModelHandle>>>,
    optimizers: RefCell<Vec<Weak<RefCell<dyn Optimizer>>>>,
    schedulers: RefCell<Vec<Weak<RefCell<dyn Scheduler>>>>,
    custom: RefCell<Vec<Rc<RefCell<dyn Checkpointable>>>>,
}

impl Registry {
    pub(crate) fn add_model(&self, model: &Rc<ModelHandle>) {
        add(&self.models, Rc::downgrade(model));
    }

    pub(crate) fn add_optimizer(&self, optimizer: Weak<RefCell<dyn Optimizer>>) {
        add(&self.optimizers, optimizer);
    }

    pub(crate) fn add_scheduler(&self, scheduler: Weak<RefCell<dyn Scheduler>>) {
        add(&self.schedulers, scheduler);
    }

    pub(crate) fn add_custom(&self, object: Rc<RefCell<dyn Checkpointable>>) {
        self.custom.borrow_mut().push(object);
    }

    pub(crate) fn models(&self) -> Vec<Rc<ModelHandle>> {
        alive(&self.models)
    }

    pub(crate) fn optimizers(&self) -> Vec<Rc<RefCell<dyn Optimizer>>> {
        alive(&self.optimizers)
    }

    pub(crate) fn schedulers(&self) -> Vec<Rc<RefCell<dyn Scheduler>>> {
        alive(&self.schedulers)
    }

    pub(crate) fn custom(&self) -> Vec<Rc<RefCell<dyn Checkpointable>>> {
        self.custom.borrow().clone()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.models.borrow_mut().clear();
        self.optimizers.borrow_mut().clear();
        self.schedulers.borrow_mut().clear();
        self.custom.borrow_mut().clear();
    }
}

fn add<T: ?Sized>(list: &RefCell<Vec<Weak<T>>>, item: Weak<T>) {
    let mut list = list.borrow_mut();
    list.retain(|known| known.strong_count() > 0);
    list.push(item);
}

fn alive<T: ?Sized>(list: &RefCell<Vec<Weak<T>>>) -> Vec<Rc<T>> {
    list.borrow().iter().filter_map(Weak::upgrade).collect()
}
