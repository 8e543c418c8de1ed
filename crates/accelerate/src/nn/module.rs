//! What a module is.

use std::rc::Rc;

use tch::Device;

use super::{BatchNormSync, Buffer, Hook, HookId, ModuleState, Parameter, walk};
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
pub trait Module: AsModule {
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

    /// This module under the empty name, then every module below it with its dotted name.
    fn named_modules(&self) -> Vec<(String, &dyn Module)> {
        walk::modules(self.as_module())
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

    /// Moves every parameter, its gradient, and every buffer to `device`.
    ///
    /// All handles on them, such as those of an optimizer, see the move.
    ///
    /// # Errors
    /// If the device is absent or out of memory; parameters moved until then stay moved.
    fn to_device(&self, device: Device) -> Result<()> {
        self.parameters()
            .into_iter()
            .try_for_each(|parameter| parameter.to_device(device))?;
        self.named_buffers()
            .into_iter()
            .try_for_each(|(_, buffer)| buffer.to_device(device))
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
}

/// Views a module as an object; implemented for every module.
pub trait AsModule {
    /// This module as an object.
    fn as_module(&self) -> &dyn Module;
}

impl<M: Module> AsModule for M {
    fn as_module(&self) -> &dyn Module {
        self
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
