//! What a program does before its state is saved or loaded.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::Path;
use std::rc::{Rc, Weak};

use super::state_dict::StateDict;
use crate::Result;
use crate::nn::Module;

/// What is about to be saved, for a hook to add to or to take from.
#[derive(Debug)]
#[non_exhaustive]
pub struct SavingState<'a> {
    /// The folder that is being written. What the hook puts there becomes a part of the checkpoint.
    pub output_dir: &'a Path,
    /// The models, in the order in which they were prepared. One that is taken out is not saved;
    /// the hook does it, or nobody.
    pub models: Vec<SavingModel<'a>>,
}

/// A model that is about to be saved.
#[non_exhaustive]
pub struct SavingModel<'a> {
    /// Its place among the prepared models.
    pub index: usize,
    /// Its parameters and buffers under their dotted names, without the tree around them.
    pub module: &'a dyn Module,
    /// What will be written.
    pub weights: StateDict,
}

/// What is about to be loaded, for a hook to load itself.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadingState<'a> {
    /// The checkpoint.
    pub input_dir: &'a Path,
    /// The models, in the order in which they were prepared. One that is taken out is not loaded;
    /// the hook does it, or nobody.
    pub models: Vec<LoadingModel<'a>>,
}

/// A model that is about to be loaded.
#[non_exhaustive]
pub struct LoadingModel<'a> {
    /// Its place among the prepared models.
    pub index: usize,
    /// Its parameters and buffers under their dotted names, without the tree around them.
    pub module: &'a dyn Module,
}

impl fmt::Debug for SavingModel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavingModel")
            .field("index", &self.index)
            .field("module", &self.module.class_name())
            .field("weights", &self.weights.keys())
            .finish()
    }
}

impl fmt::Debug for LoadingModel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingModel")
            .field("index", &self.index)
            .field("module", &self.module.class_name())
            .finish()
    }
}

type SaveHook = dyn Fn(&mut SavingState<'_>) -> Result<()>;
type LoadHook = dyn Fn(&mut LoadingState<'_>) -> Result<()>;
type Listed = RefCell<Vec<(u64, Hook)>>;

#[derive(Clone)]
enum Hook {
    Save(Rc<SaveHook>),
    Load(Rc<LoadHook>),
}

/// The hooks of one accelerator, in the order in which they were registered.
#[derive(Default)]
pub(crate) struct StateHooks {
    hooks: Rc<Listed>,
    next: Cell<u64>,
}

impl StateHooks {
    pub(crate) fn before_save(
        &self,
        hook: impl Fn(&mut SavingState<'_>) -> Result<()> + 'static,
    ) -> StateHookHandle {
        self.add(Hook::Save(Rc::new(hook)))
    }

    pub(crate) fn before_load(
        &self,
        hook: impl Fn(&mut LoadingState<'_>) -> Result<()> + 'static,
    ) -> StateHookHandle {
        self.add(Hook::Load(Rc::new(hook)))
    }

    fn add(&self, hook: Hook) -> StateHookHandle {
        let id = self.next.replace(self.next.get() + 1);
        self.hooks.borrow_mut().push((id, hook));
        StateHookHandle {
            id,
            hooks: Rc::downgrade(&self.hooks),
        }
    }

    /// A hook may add and remove hooks: those that are there now are called.
    fn now(&self) -> Vec<Hook> {
        let hooks = self.hooks.borrow();
        hooks.iter().map(|(_, hook)| hook.clone()).collect()
    }

    pub(super) fn saving(&self, state: &mut SavingState<'_>) -> Result<()> {
        self.now().into_iter().try_for_each(|hook| match hook {
            Hook::Save(hook) => hook(state),
            Hook::Load(_) => Ok(()),
        })
    }

    pub(super) fn loading(&self, state: &mut LoadingState<'_>) -> Result<()> {
        self.now().into_iter().try_for_each(|hook| match hook {
            Hook::Load(hook) => hook(state),
            Hook::Save(_) => Ok(()),
        })
    }
}

/// A hook that was registered, to take it away again. Dropping the handle leaves the hook.
///
/// # Source
/// `torch.utils.hooks.RemovableHandle`.
pub struct StateHookHandle {
    id: u64,
    hooks: Weak<Listed>,
}

impl StateHookHandle {
    /// Takes the hook away.
    pub fn remove(self) {
        if let Some(hooks) = self.hooks.upgrade() {
            hooks.borrow_mut().retain(|(id, _)| *id != self.id);
        }
    }
}

impl fmt::Debug for StateHookHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateHookHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
