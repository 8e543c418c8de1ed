//! What surrounds the passes of one unit's module.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerate_torch::autograd;
use tch::Kind;

use super::engine::Engine;
use crate::Result;
use crate::collectives::Site;
use crate::nn::{Hook, Module};
use crate::state::PartialState;
use crate::tree::{Tree, leaves};

/// Into which types a module's floating-point inputs and outputs are converted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Casts {
    pub(super) inputs: Option<Kind>,
    pub(super) outputs: Option<Kind>,
}

fn cast(tree: &mut dyn Tree, kind: Kind) -> Result<()> {
    tree.visit_mut(&mut |leaf| {
        let own = leaf.f_kind()?;
        let is_float = matches!(
            own,
            Kind::Float | Kind::Half | Kind::BFloat16 | Kind::Double
        );
        if is_float && own != kind {
            *leaf = leaf.f_to_kind(kind)?;
        }
        Ok(())
    })
}

/// Gathers a unit before its module computes, and drops it after.
pub(super) struct UnitHook {
    engine: Arc<Engine>,
    unit: usize,
    /// The class of the model.
    class: &'static str,
    state: PartialState,
    casts: Casts,
    /// The calls under way, the innermost last.
    calls: RefCell<Vec<u64>>,
}

impl UnitHook {
    pub(super) fn new(
        engine: &Arc<Engine>,
        unit: usize,
        class: &'static str,
        state: &PartialState,
        casts: Casts,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            unit,
            class,
            state: state.clone(),
            casts,
            calls: RefCell::default(),
        }
    }

    /// Notices when the gradients of all inputs are there: the unit's backward pass is over then.
    fn watch_inputs(&self, input: &dyn Tree, call: u64) -> Result<()> {
        let mut watched = leaves(input)?;
        watched.retain(tch::Tensor::requires_grad);
        let left = Arc::new(AtomicUsize::new(watched.len()));
        for tensor in watched {
            let (engine, unit, left) = (Arc::clone(&self.engine), self.unit, Arc::clone(&left));
            let _stays = autograd::on_gradient(&tensor, move |_| {
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    engine.after_backward(unit, call)?;
                }
                Ok(None)
            })?;
        }
        Ok(())
    }

    /// Gathers the unit again when the gradient of one of its outputs is there; whether one can come.
    fn watch_outputs(&self, output: &dyn Tree, call: u64) -> Result<bool> {
        let mut can_come = false;
        for tensor in leaves(output)? {
            if !tensor.requires_grad() {
                continue;
            }
            can_come = true;
            let (engine, unit) = (Arc::clone(&self.engine), self.unit);
            let _stays = autograd::on_gradient(&tensor, move |_| {
                engine.before_backward(unit, call)?;
                Ok(None)
            })?;
        }
        Ok(can_come)
    }
}

impl Hook for UnitHook {
    fn before_forward(&self, _module: &dyn Module, input: &mut dyn Tree) -> Result<()> {
        if let Some(kind) = self.casts.inputs {
            cast(input, kind)?;
        }
        let records = autograd::is_enabled();
        let site = Site::Model(self.class);
        let call = self
            .state
            .counted("forward", site, |_| self.engine.enter(self.unit, records))?;
        self.calls.borrow_mut().push(call);
        if records && self.engine.has_frozen(self.unit) {
            self.watch_inputs(input, call)?;
        }
        Ok(())
    }

    fn after_forward(&self, _module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        let records = autograd::is_enabled();
        if let Some(kind) = self.casts.outputs {
            cast(output, kind)?;
        }
        let call = self.calls.borrow_mut().pop();
        let is_watched = match call.filter(|_| records) {
            Some(call) => self.watch_outputs(output, call)?,
            None => false,
        };
        self.engine.leave(self.unit, records, is_watched)
    }

    fn abandon_forward(&self, _module: &dyn Module) {
        let _call = self.calls.borrow_mut().pop();
        if let Err(error) = self.engine.leave(self.unit, false, false) {
            tracing::debug!(%error, "a unit could not be dropped after its forward pass failed");
        }
    }
}
