use std::cell::{Ref, RefCell, RefMut};
use std::fmt;
use std::rc::{Rc, Weak};

use super::group::ParamGroups;
use super::optimizer::Optimizer;
use super::state_dict::StateDict;
use crate::Result;
use crate::gradient_state::GradientState;
use crate::offload::DiskFolder;
use crate::precision::GradScaler;

/// An optimizer that steps only when gradients are complete.
///
/// While gradients are accumulated, [`step`](Optimizer::step) and
/// [`zero_grad`](Optimizer::zero_grad) do nothing, so a loop needs no conditions. With a
/// [`GradScaler`] a step divides the gradients by the loss scale first, is left out where they
/// are not finite ([`step_was_skipped`](Self::step_was_skipped)), and moves the scale on.
///
/// # Source
/// `accelerate.optimizer.AcceleratedOptimizer`.
pub struct AcceleratedOptimizer<O> {
    /// Shared with the accelerator, which saves and loads its state.
    inner: Rc<RefCell<O>>,
    name: &'static str,
    groups: ParamGroups,
    gradient_state: GradientState,
    scaler: Option<GradScaler>,
    before_step: Option<BeforeStep>,
}

/// What happens to complete gradients before a step.
type BeforeStep = Rc<dyn Fn(&ParamGroups) -> Result<()>>;

impl<O: Optimizer> AcceleratedOptimizer<O> {
    /// Makes `inner` follow `gradient_state`.
    pub fn new(inner: O, gradient_state: GradientState) -> Self {
        Self {
            name: inner.name(),
            groups: inner.groups().clone(),
            inner: Rc::new(RefCell::new(inner)),
            gradient_state,
            scaler: None,
            before_step: None,
        }
    }

    /// Steps with a scaler, where there is one.
    #[must_use]
    pub fn with_scaler(mut self, scaler: Option<&GradScaler>) -> Self {
        self.scaler = scaler.cloned();
        if let Some(scaler) = &self.scaler {
            scaler.register(&*self.inner.borrow());
        }
        self
    }

    /// Does something with complete gradients before each step.
    #[must_use]
    pub(crate) fn with_before_step(
        mut self,
        before_step: impl Fn(&ParamGroups) -> Result<()> + 'static,
    ) -> Self {
        self.before_step = Some(Rc::new(before_step));
        self
    }

    /// Notes that gradients of this optimizer, divided by the loss scale or not, are gone.
    fn gradients_dropped(&self) {
        if let Some(scaler) = &self.scaler {
            scaler.gradients_dropped(self.groups.learning_rates());
        }
    }

    /// Whether the last step was skipped because gradients were not finite.
    pub fn step_was_skipped(&self) -> bool {
        self.learning_rates().was_skipped()
    }

    /// The optimizer as it was before.
    pub fn inner(&self) -> Ref<'_, O> {
        self.inner.borrow()
    }

    /// As [`inner`](Self::inner), for changes.
    pub fn inner_mut(&mut self) -> RefMut<'_, O> {
        self.inner.borrow_mut()
    }

    /// The optimizer as it was before; the accelerator no longer saves its state.
    pub fn into_inner(self) -> Option<O> {
        Rc::into_inner(self.inner).map(RefCell::into_inner)
    }
}

impl<O: Optimizer + 'static> AcceleratedOptimizer<O> {
    /// A handle on the optimizer that does not keep it alive.
    pub(crate) fn handle(&self) -> Weak<RefCell<dyn Optimizer>> {
        let inner: Rc<RefCell<dyn Optimizer>> = Rc::<RefCell<O>>::clone(&self.inner);
        Rc::downgrade(&inner)
    }
}

impl<O: Optimizer> Optimizer for AcceleratedOptimizer<O> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn groups(&self) -> &ParamGroups {
        &self.groups
    }

    fn is_elementwise(&self) -> bool {
        self.inner.borrow().is_elementwise()
    }

    fn step(&mut self) -> Result<()> {
        if !self.gradient_state.sync_gradients() {
            return Ok(());
        }
        let progress = self.gradient_state.progress();
        let _range = progress.steps().optimizer();
        if let Some(before_step) = &self.before_step {
            before_step(&self.groups)?;
        }
        match &self.scaler {
            None => self.inner.borrow_mut().step()?,
            Some(scaler) => {
                let stepped = scaler.step_and_update(&mut *self.inner.borrow_mut())?;
                self.groups.learning_rates().set_skipped(!stepped);
            }
        }
        let number = Rc::as_ptr(&self.inner).addr();
        progress.steps().stepped(number, self.scaler.as_ref());
        match progress.recording() {
            Some(recording) => recording.step(&*self.inner.borrow(), self.scaler.as_ref()),
            None => Ok(()),
        }
    }

    fn zero_grad(&mut self) -> Result<()> {
        if self.gradient_state.sync_gradients() {
            self.gradients_dropped();
            self.inner.borrow_mut().zero_grad()
        } else {
            Ok(())
        }
    }

    fn zero_grad_in_place(&mut self) -> Result<()> {
        if self.gradient_state.sync_gradients() {
            self.gradients_dropped();
            self.inner.borrow_mut().zero_grad_in_place()
        } else {
            Ok(())
        }
    }

    fn train(&mut self) -> Result<()> {
        self.inner.borrow_mut().train()
    }

    fn eval(&mut self) -> Result<()> {
        self.inner.borrow_mut().eval()
    }

    fn state_dict(&self) -> Result<StateDict> {
        self.inner.borrow().state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        self.inner.borrow_mut().load_state_dict(state)
    }

    fn keep_state_on_disk(&mut self, folder: &DiskFolder) -> Result<()> {
        self.inner.borrow_mut().keep_state_on_disk(folder)
    }
}

impl<O: fmt::Debug> fmt::Debug for AcceleratedOptimizer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceleratedOptimizer")
            .field("inner", &self.inner)
            .field("gradient_state", &self.gradient_state)
            .field("scaler", &self.scaler)
            .finish_non_exhaustive()
    }
}
