//! What a module is.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use tch::{Device, Kind};

use super::{
    BackwardHook, BatchNormSync, Buffer, Hook, HookId, ModuleState, ModuleText, Parameter, find,
    moves, ties, walk,
};
use crate::checkpoint::{self, LoadOptions, LoadReport, StateDict};
use crate::{Error, Result};

/// A node of the module tree: it has a class, a place for mode and hooks, and named members.
///
/// Derive it with [`derive(Module)`](macro@super::Module). By hand, write the four required
/// methods; everything else follows from them. The trait can be made into an object, so that
/// hooks, checkpoints and sharding work on `&dyn Module` without knowing the model.
///
/// # Source
/// `torch.nn.Module`. Differs: members are the fields of the struct, so they cannot be added
/// later or forgotten; a module list or map has no [state](Self::state) because it is never called.
pub trait Module: AsModule + Any {
    /// The class name that public configurations use, such as `BertLayer`.
    fn class_name(&self) -> &'static str;

    /// The place for mode and hooks; none for lists and maps of modules, which are never called.
    fn state(&self) -> Option<&ModuleState>;

    /// Calls `visit` with the name of every direct member, in the order of declaration.
    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>));

    /// As [`members`](Self::members), with the right to change or replace a member.
    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>));

    /// Where a batch norm keeps over which ranks it takes its statistics; none for other modules.
    fn batch_norm_sync(&self) -> Option<&BatchNormSync> {
        None
    }

    /// Every parameter below this module with its dotted name; a tied one once, under its first name.
    fn named_parameters(&self) -> Vec<(String, &Parameter)> {
        walk::without_repeats(walk::parameters(self.as_module()), Parameter::identity)
    }

    /// Every buffer below this module with its dotted name; a shared one once, under its first name.
    fn named_buffers(&self) -> Vec<(String, &Buffer)> {
        walk::without_repeats(walk::buffers(self.as_module()), Buffer::identity)
    }

    /// What stands in the parentheses when the module is [shown](Self::display), such as
    /// `in_features=4, out_features=8, bias=True`.
    ///
    /// # Source
    /// `Module.extra_repr`.
    fn extra_repr(&self) -> String {
        String::new()
    }

    /// How wide the hidden states are, as the model's configuration says: one width, or that of each
    /// stage; none where there is no such configuration. `auto` sizes of a DeepSpeed config come from
    /// here.
    ///
    /// # Source
    /// `model.config.hidden_size` and `model.config.hidden_sizes`.
    fn hidden_sizes(&self) -> Vec<u64> {
        Vec::new()
    }

    /// The module that this one stands for: what a box or an enum holds, else the module itself.
    fn inner(&self) -> &dyn Module {
        self.as_module()
    }

    /// This module under the empty name, then every module below it with its dotted name.
    ///
    /// A module and its clones share their state and hooks and are one module: it is listed once,
    /// under its first name.
    fn named_modules(&self) -> Vec<(String, &dyn Module)> {
        walk::modules(self.as_module())
    }

    /// The modules that are direct members, with their names.
    fn named_children(&self) -> Vec<(String, &dyn Module)> {
        walk::children(self.as_module())
    }

    /// Every parameter below this module, a tied one once.
    fn parameters(&self) -> Vec<&Parameter> {
        self.named_parameters()
            .into_iter()
            .map(|(_, parameter)| parameter)
            .collect()
    }

    /// The number of values in all parameters, tied ones counted once.
    fn num_parameters(&self) -> usize {
        self.parameters().into_iter().map(Parameter::numel).sum()
    }

    /// Whether the module is in training mode.
    fn is_training(&self) -> bool {
        self.state().is_some_and(ModuleState::is_training)
    }

    /// Puts this module and all below it into training mode, or into evaluation mode.
    fn train(&self, training: bool) {
        for (_, module) in self.named_modules() {
            if let Some(state) = module.state() {
                state.set_training(training);
            }
        }
    }

    /// Turns gradients of every parameter on or off; off freezes the module.
    ///
    /// # Errors
    /// If a parameter cannot have gradients because its values are no floating-point numbers.
    fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        self.parameters()
            .into_iter()
            .try_for_each(|parameter| parameter.set_requires_grad(requires_grad))
    }

    /// Takes the gradient of every parameter away, which frees its memory.
    ///
    /// # Errors
    /// None that is known.
    fn zero_grad(&self) -> Result<()> {
        self.parameters()
            .into_iter()
            .try_for_each(Parameter::zero_grad)
    }

    /// Moves every parameter, its gradient, and every buffer to `device`.
    ///
    /// All handles on them, such as those of an optimizer, see the move, and what is tied stays
    /// tied.
    ///
    /// # Errors
    /// [`Error::OnMeta`] before anything moves, if a tensor has no values to move; what a
    /// [hook](super::Hook::before_move) has against it, such as one of a model that is spread over
    /// devices. If the device
    /// is absent or out of memory; parameters moved until then stay moved.
    fn to_device(&self, device: Device) -> Result<()> {
        moves::to_device(self.as_module(), device)
    }

    /// Converts every floating-point parameter, its gradient, and every floating-point buffer to
    /// `kind`; other tensors, such as counts, keep their type.
    ///
    /// All handles on them, such as those of an optimizer, see the change, and what is tied stays
    /// tied. Data parallelism is prepared after it, not before.
    ///
    /// # Errors
    /// [`Error::Argument`] if `kind` is no floating-point type. If memory is short; what was
    /// converted until then stays converted.
    ///
    /// # Source
    /// `Module.to(dtype)`. Differs: complex values are left alone instead of losing their
    /// imaginary part.
    fn to_kind(&self, kind: Kind) -> Result<()> {
        moves::to_kind(self.as_module(), kind)
    }

    /// As [`to_kind`](Self::to_kind), to 16 bits with the narrow range.
    ///
    /// # Errors
    /// If memory is short.
    fn half(&self) -> Result<()> {
        self.to_kind(Kind::Half)
    }

    /// As [`to_kind`](Self::to_kind), to 16 bits with the range of float32.
    ///
    /// # Errors
    /// If memory is short.
    fn bfloat16(&self) -> Result<()> {
        self.to_kind(Kind::BFloat16)
    }

    /// As [`to_kind`](Self::to_kind), to float32.
    ///
    /// # Errors
    /// If memory is short.
    fn float(&self) -> Result<()> {
        self.to_kind(Kind::Float)
    }

    /// Gives every tensor on the meta device memory on `device`, with undefined values, and moves
    /// the others there with their values.
    ///
    /// What is tied stays tied, and trained or frozen as it was. A tensor that had no memory is
    /// another tensor afterwards: make optimizers after this, not before.
    ///
    /// # Errors
    /// If the device is absent or out of memory.
    ///
    /// # Source
    /// `Module.to_empty`. Differs: values that exist are kept.
    fn materialize(&mut self, device: Device) -> Result<()> {
        moves::materialize(self.as_module_mut(), device)
    }

    /// The names that share one parameter: a list for each parameter with more than one name.
    ///
    /// # Source
    /// `find_tied_parameters`. Differs: names and lists come in the order of the tree.
    fn tied_parameters(&self) -> Vec<Vec<String>> {
        ties::tied_parameters(self.as_module())
    }

    /// Ties the names of each list again: all get the first parameter of the list that has values.
    ///
    /// A list whose parameters are all on the meta device is left as it is.
    ///
    /// # Errors
    /// [`Error::NoSuchMember`] before anything changes, if a name is none of a parameter;
    /// [`Error::Argument`] if the shapes in a list differ.
    ///
    /// # Source
    /// `retie_parameters`.
    fn retie(&mut self, groups: &[Vec<String>]) -> Result<()> {
        ties::retie(self.as_module_mut(), groups)
    }

    /// The module with this dotted name; the module itself for the empty name.
    ///
    /// # Errors
    /// [`Error::NoSuchMember`] with the names there are.
    fn get_submodule(&self, name: &str) -> Result<&dyn Module> {
        find::submodule(self.as_module(), name)
    }

    /// The parameter with this dotted name; a tied one is found under each of its names.
    ///
    /// # Errors
    /// [`Error::NoSuchMember`] with the names there are.
    fn get_parameter(&self, name: &str) -> Result<&Parameter> {
        find::parameter(self.as_module(), name)
    }

    /// The buffer with this dotted name.
    ///
    /// # Errors
    /// [`Error::NoSuchMember`] with the names there are.
    fn get_buffer(&self, name: &str) -> Result<&Buffer> {
        find::buffer(self.as_module(), name)
    }

    /// Puts another module in the place of the one with this dotted name.
    ///
    /// A field keeps its type: what replaces a [`Linear`](super::Linear) is a `Linear`. Where
    /// modules of other types are to be put, the field is a `Box<dyn Module>`, which takes any; a
    /// [`Layer`](super::Layer), which takes another `Layer`; or an enum, which takes its like.
    ///
    /// ```
    /// use accelerate::nn::{Activation, ActivationFunction, Factory, Forward, Layer, Linear, Module, Sequential};
    /// use accelerate::tch::Tensor;
    ///
    /// let mut model = Sequential::new().with(Linear::new(2, 2, &Factory::default())?);
    /// let relu = Activation::new(ActivationFunction::Relu);
    /// model.replace_submodule("0", Box::new(Layer::new(relu)))?;
    /// assert_eq!(model.call(Tensor::from_slice(&[-1.0, 2.0]))?, Tensor::from_slice(&[0.0, 2.0]));
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchMember`] with the names there are; [`Error::MemberType`] if the module does
    /// not fit into the field.
    ///
    /// # Source
    /// `Module.set_submodule`. Differs: it never adds a member.
    fn replace_submodule(&mut self, name: &str, new: Box<dyn Module>) -> Result<()> {
        find::replace(self.as_module_mut(), name, new)
    }

    /// Every parameter and persistent buffer by name, in PyTorch's order; tied parameters under
    /// each of their names.
    ///
    /// The tensors share their memory with the module and are outside of autograd.
    ///
    /// # Errors
    /// None that is known.
    fn state_dict(&self) -> Result<StateDict> {
        checkpoint::state_dict(self.as_module())
    }

    /// Copies tensors into the parameters and persistent buffers of the same names.
    ///
    /// # Errors
    /// As [`load_state_dict`](checkpoint::load_state_dict).
    fn load_state_dict(&self, state: &StateDict, options: &LoadOptions<'_>) -> Result<LoadReport> {
        checkpoint::load_state_dict(self.as_module(), state, options)
    }

    /// The module as PyTorch prints it: a line for each module, with its name, class and sizes.
    fn display(&self) -> ModuleText<'_> {
        ModuleText::new(self.as_module())
    }

    /// Adds a hook to this module; it runs after those added before.
    ///
    /// # Errors
    /// [`Error::HookOnContainer`] for a list or map of modules: nobody calls it, so the hook
    /// would never run.
    fn add_hook(&self, hook: Rc<dyn Hook>) -> Result<HookId> {
        let state = self.state().ok_or(Error::HookOnContainer {
            class: self.class_name(),
        })?;
        Ok(state.add_hook(hook))
    }

    /// Adds a hook that runs around the backward pass of this module, after those added before.
    ///
    /// # Errors
    /// [`Error::HookOnContainer`] as for [`add_hook`](Self::add_hook).
    fn add_backward_hook(&self, hook: Arc<dyn BackwardHook>) -> Result<HookId> {
        let state = self.state().ok_or(Error::HookOnContainer {
            class: self.class_name(),
        })?;
        Ok(state.add_backward_hook(hook))
    }
}

/// Views a module as an object; implemented for every module.
pub trait AsModule {
    /// This module as an object.
    fn as_module(&self) -> &dyn Module;

    /// This module as an object that can be changed.
    fn as_module_mut(&mut self) -> &mut dyn Module;

    /// This module as a value of any type.
    fn as_any(&self) -> &(dyn Any + 'static);

    /// This module as a value of any type that can be changed.
    fn as_any_mut(&mut self) -> &mut (dyn Any + 'static);

    /// The full name of the type, for messages.
    fn type_name(&self) -> &'static str;

    /// Puts this module into the place of another; gives it back where it does not fit.
    ///
    /// # Errors
    /// The module itself.
    fn put_into(self: Box<Self>, place: &mut (dyn Any + 'static)) -> Result<(), Box<dyn Module>>;
}

impl<M: Module> AsModule for M {
    fn as_module(&self) -> &dyn Module {
        self
    }

    fn as_module_mut(&mut self) -> &mut dyn Module {
        self
    }

    fn as_any(&self) -> &(dyn Any + 'static) {
        self
    }

    fn as_any_mut(&mut self) -> &mut (dyn Any + 'static) {
        self
    }

    fn type_name(&self) -> &'static str {
        std::any::type_name::<M>()
    }

    fn put_into(self: Box<Self>, place: &mut (dyn Any + 'static)) -> Result<(), Box<dyn Module>> {
        if let Some(place) = place.downcast_mut::<M>() {
            *place = *self;
        } else if let Some(place) = place.downcast_mut::<Box<M>>() {
            *place = self;
        } else if let Some(place) = place.downcast_mut::<Box<dyn Module>>() {
            *place = self;
        } else {
            return Err(self);
        }
        Ok(())
    }
}

impl<'m> dyn Module + 'm {
    /// This module, or the one in the box or enum, if it is of the type `M`.
    ///
    /// So a walk over [`named_modules`](Module::named_modules) finds layers of one type.
    pub fn downcast_ref<M: Module>(&self) -> Option<&M> {
        let own = self.as_any().downcast_ref();
        own.or_else(|| self.inner().as_any().downcast_ref())
    }
}

/// One direct member of a module.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Member<'m> {
    /// A tensor that is trained.
    Parameter(&'m Parameter),
    /// A tensor that belongs to the module and is not trained.
    Buffer(&'m Buffer),
    /// A child module.
    Module(&'m dyn Module),
}

/// One direct member of a module, with the right to change it.
#[non_exhaustive]
pub enum MemberMut<'m> {
    /// A tensor that is trained.
    Parameter(&'m mut Parameter),
    /// A tensor that belongs to the module and is not trained.
    Buffer(&'m mut Buffer),
    /// A child module.
    Module(&'m mut dyn Module),
}

impl std::fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parameter(parameter) => parameter.fmt(f),
            Self::Buffer(buffer) => buffer.fmt(f),
            Self::Module(module) => f.write_str(module.class_name()),
        }
    }
}

impl std::fmt::Debug for MemberMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parameter(parameter) => parameter.fmt(f),
            Self::Buffer(buffer) => buffer.fmt(f),
            Self::Module(module) => f.write_str(module.class_name()),
        }
    }
}
