//! Mode and hooks of one module.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use tch::Device;

use super::{ActivationCheckpoint, BackwardHook, Module};
use crate::Result;
use crate::tree::Tree;

/// Code that runs around the forward pass of a module.
///
/// Sharding, offloading, casting and profiling are hooks; layers and models know nothing of
/// them. All methods do nothing unless written. A hook may change or replace any tensor of the
/// input or output, and may add or remove hooks: such a change counts from the next call on.
pub trait Hook {
    /// Runs before the forward pass, with its input.
    ///
    /// # Errors
    /// An error ends the call; the forward pass and all further hooks do not run.
    fn before_forward(&self, module: &dyn Module, input: &mut dyn Tree) -> Result<()> {
        let _ = (module, input);
        Ok(())
    }

    /// Runs after a forward pass that succeeded, with its output.
    ///
    /// # Errors
    /// An error ends the call; the remaining hooks do not run.
    fn after_forward(&self, module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        let _ = (module, output);
        Ok(())
    }

    /// Runs instead of [`after_forward`](Self::after_forward) where that will not come,
    /// because the call failed or panicked: ends what `before_forward` began.
    fn abandon_forward(&self, module: &dyn Module) {
        let _ = module;
    }

    /// What lets the module compute its activations again in the backward pass, rather than keep
    /// them; the first hook of a module that answers counts.
    fn checkpoint(&self) -> Option<&ActivationCheckpoint> {
        None
    }

    /// Runs before the module, or one around it, is [moved](super::Module::to_device) as a whole.
    ///
    /// # Errors
    /// An error keeps everything where it is.
    fn before_move(&self, module: &dyn Module, device: Device) -> Result<()> {
        let _ = (module, device);
        Ok(())
    }

    /// This hook as a value of any type, for who looks for hooks of one kind among those of a module;
    /// nothing unless written.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Names one hook of one module, to remove it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HookId(u64);

/// The mode and the hooks of one module: the field that every called module has.
///
/// A clone shares both with its original, as a clone of a parameter shares its values. A new
/// module is in training mode and has no hooks, and a call then costs nothing extra.
#[derive(Clone, Default)]
pub struct ModuleState(Rc<Shared>);

/// The hooks of one module, in the order they were added.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) forward: Vec<(HookId, Rc<dyn Hook>)>,
    pub(super) backward: Vec<(HookId, Arc<dyn BackwardHook>)>,
}

impl Hooks {
    fn len(&self) -> usize {
        self.forward.len() + self.backward.len()
    }
}

struct Shared {
    training: Cell<bool>,
    hooks: RefCell<Option<Rc<Hooks>>>,
    next: Cell<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            training: Cell::new(true),
            hooks: RefCell::default(),
            next: Cell::new(0),
        }
    }
}

impl ModuleState {
    /// Whether the module is in training mode, as dropout asks.
    pub fn is_training(&self) -> bool {
        self.0.training.get()
    }

    /// Sets the mode of this one module; [`Module::train`](super::Module::train) sets it for a tree.
    pub fn set_training(&self, training: bool) {
        self.0.training.set(training);
    }

    /// Adds a hook after those that are there.
    ///
    /// # Source
    /// `register_forward_pre_hook` and `register_forward_hook` in one. As in PyTorch, hooks run in
    /// the order they were added, before and after the forward pass alike.
    pub fn add_hook(&self, hook: Rc<dyn Hook>) -> HookId {
        self.add(|hooks, id| hooks.forward.push((id, hook)))
    }

    /// Adds a hook around the backward pass after those that are there.
    ///
    /// # Source
    /// `register_full_backward_pre_hook` and `register_full_backward_hook` in one; see
    /// [`BackwardHook`].
    pub fn add_backward_hook(&self, hook: Arc<dyn BackwardHook>) -> HookId {
        self.add(|hooks, id| hooks.backward.push((id, hook)))
    }

    /// Removes a hook; false where it was removed before.
    pub fn remove_hook(&self, id: HookId) -> bool {
        let mut slot = self.0.hooks.borrow_mut();
        let Some(shared) = slot.as_mut() else {
            return false;
        };
        let hooks = Rc::make_mut(shared);
        let before = hooks.len();
        hooks.forward.retain(|(other, _)| *other != id);
        hooks.backward.retain(|(other, _)| *other != id);
        let left = hooks.len();
        if left == 0 {
            *slot = None;
        }
        left < before
    }

    /// The hooks of the type `H`, in the order they were added.
    pub(crate) fn hooks_of<H: Hook + Clone + 'static>(&self) -> Vec<H> {
        self.forward_hooks_of::<H>().map(|(_, hook)| hook).collect()
    }

    /// Removes the hooks of the type `H`, and gives them.
    pub(crate) fn take_hooks<H: Hook + Clone + 'static>(&self) -> Vec<H> {
        let found: Vec<_> = self.forward_hooks_of::<H>().collect();
        found
            .into_iter()
            .map(|(id, hook)| {
                self.remove_hook(id);
                hook
            })
            .collect()
    }

    fn forward_hooks_of<H: Hook + Clone + 'static>(
        &self,
    ) -> impl Iterator<Item = (HookId, H)> + use<H> {
        let hooks = self.hooks().map(|hooks| hooks.forward.clone());
        hooks.into_iter().flatten().filter_map(|(id, hook)| {
            let hook = hook.as_any()?.downcast_ref::<H>()?;
            Some((id, hook.clone()))
        })
    }

    /// Asks every hook whether the module may be moved.
    pub(super) fn ask_to_move(&self, module: &dyn Module, device: Device) -> Result<()> {
        let hooks = self.hooks().map(|hooks| hooks.forward.clone());
        let mut hooks = hooks.into_iter().flatten();
        hooks.try_for_each(|(_, hook)| hook.before_move(module, device))
    }

    /// The same number for two states exactly where they belong to one module and its clones.
    pub(super) fn identity(&self) -> usize {
        Rc::as_ptr(&self.0).addr()
    }

    /// The hooks as they are now, or none.
    pub(super) fn hooks(&self) -> Option<Rc<Hooks>> {
        self.0.hooks.borrow().clone()
    }

    fn add(&self, push: impl FnOnce(&mut Hooks, HookId)) -> HookId {
        let id = HookId(self.0.next.replace(self.0.next.get() + 1));
        let mut hooks = self.0.hooks.borrow_mut();
        push(Rc::make_mut(hooks.get_or_insert_default()), id);
        id
    }
}

impl fmt::Debug for ModuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hooks = self.hooks().map_or(0, |hooks| hooks.len());
        f.debug_struct("ModuleState")
            .field("training", &self.is_training())
            .field("hooks", &hooks)
            .finish()
    }
}
