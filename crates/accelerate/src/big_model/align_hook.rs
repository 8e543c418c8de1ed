//! The hook that brings weights and inputs to where a module is computed.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use tch::Device;

use super::devices::{DeviceTable, Site};
use super::pipeline::Pipeline;
use super::slot::Slot;
use crate::Result;
use crate::nn::{Hook, Module};
use crate::tree::{Tree, TreePath, find_device};

/// Brings the inputs of a module to the device it is computed on, and weights that wait elsewhere;
/// takes the weights away again afterwards, and, if asked to, the outputs back to where the inputs
/// came from.
///
/// [`dispatch_model`](super::dispatch_model) and its like attach it. While the module does not
/// compute, a weight that waits elsewhere is on the meta device: it has a shape and a type, and the
/// type is what it is cast to when it comes. It does not switch gradients off; but a backward pass
/// needs weights that are gone by then, and fails, so run such models within `tch::no_grad`.
///
/// A clone is the same hook.
///
/// # Source
/// `AlignDevicesHook`. Differs: a weight that several modules share is one tensor in all of them, so
/// that it is at most once on each device without a table of ties; positional and named arguments
/// are one tree, of which `skip_keys` spares fields and keys by their name.
#[derive(Clone)]
pub struct AlignDevicesHook(Rc<Align>);

pub(super) struct Align {
    /// None leaves inputs where they are.
    pub(super) site: Option<Site>,
    pub(super) io_same_device: bool,
    pub(super) skip_keys: Rc<[String]>,
    /// Whether weights are kept elsewhere, even if there are none of its own here.
    pub(super) offload: bool,
    pub(super) slots: Vec<Rc<Slot>>,
    /// The number of its block among those of the pipeline.
    pub(super) block: Option<usize>,
    pub(super) engine: Rc<Engine>,
    /// Where the input of each call that is under way came from.
    pub(super) inputs_from: RefCell<Vec<Option<Device>>>,
}

/// What all hooks of a model share.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) devices: DeviceTable,
    pub(super) pipeline: Pipeline,
}

impl AlignDevicesHook {
    pub(super) fn new(align: Align) -> Self {
        Self(Rc::new(align))
    }

    /// The last hook of this kind that a module has.
    #[must_use]
    pub fn of(module: &dyn Module) -> Option<Self> {
        hooks_of(module).pop()
    }

    /// Whether weights of the module wait elsewhere.
    #[must_use]
    pub fn offloads(&self) -> bool {
        self.0.offload
    }

    /// The device that the module is computed on; none if inputs stay where they are.
    #[must_use]
    pub fn execution_device(&self) -> Option<Device> {
        self.0.site.map(|site| site.device)
    }

    /// Whether outputs go back to where inputs came from.
    #[must_use]
    pub fn io_same_device(&self) -> bool {
        self.0.io_same_device
    }

    pub(super) fn slots(&self) -> &[Rc<Slot>] {
        &self.0.slots
    }

    pub(super) fn engine(&self) -> &Rc<Engine> {
        &self.0.engine
    }

    fn bring_weights(&self) -> Result<()> {
        let Some(site) = self.0.site else {
            return Ok(());
        };
        let Engine { devices, pipeline } = &*self.0.engine;
        if let Some(block) = self.0.block {
            pipeline.begin(block)?;
        }
        for (entered, slot) in self.0.slots.iter().enumerate() {
            if let Err(error) = slot.enter(site, devices, || pipeline.take(slot)) {
                self.take_weights_away(entered)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes away the first so many weights; all of them, even if one fails.
    fn take_weights_away(&self, entered: usize) -> Result<()> {
        let Some(site) = self.0.site else {
            return Ok(());
        };
        let Engine { devices, pipeline } = &*self.0.engine;
        let mut result = Ok(());
        for slot in self.0.slots.iter().take(entered) {
            let left = slot.leave(devices).and_then(|values| match values {
                Some(values) => pipeline.give_back(slot, site, values),
                None => Ok(()),
            });
            result = result.and(left);
        }
        result
    }

    /// Ends what `before_forward` began.
    fn end(&self) -> Result<Option<Device>> {
        let from = self.0.inputs_from.borrow_mut().pop().flatten();
        self.take_weights_away(self.0.slots.len())?;
        Ok(from)
    }
}

impl Hook for AlignDevicesHook {
    fn before_forward(&self, _module: &dyn Module, input: &mut dyn Tree) -> Result<()> {
        let from = match self.0.io_same_device {
            true => find_device(input)?,
            false => None,
        };
        self.bring_weights()?;
        if let Some(site) = self.0.site
            && let Err(error) = send(input, site.device, &self.0.skip_keys)
        {
            self.take_weights_away(self.0.slots.len())?;
            return Err(error);
        }
        self.0.inputs_from.borrow_mut().push(from);
        Ok(())
    }

    fn after_forward(&self, _module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        match self.end()? {
            Some(device) => send(output, device, &self.0.skip_keys),
            None => Ok(()),
        }
    }

    fn abandon_forward(&self, module: &dyn Module) {
        if let Err(error) = self.end() {
            tracing::warn!(
                class = module.class_name(),
                "weights stay where they were computed with: {error}"
            );
        }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl fmt::Debug for AlignDevicesHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignDevicesHook")
            .field("execution_device", &self.execution_device())
            .field("offload", &self.0.offload)
            .field("io_same_device", &self.0.io_same_device)
            .field("weights", &self.0.slots.len())
            .finish_non_exhaustive()
    }
}

/// Moves all tensors but those below fields or keys of these names.
fn send(tree: &mut dyn Tree, device: Device, skip_keys: &[String]) -> Result<()> {
    tree.visit_paths_mut(&TreePath::root(), &mut |path, leaf| {
        if leaf.device() != device && !skip_keys.iter().any(|key| path.passes(key)) {
            *leaf = leaf.f_to_device(device)?;
        }
        Ok(())
    })
}

/// Whether weights of this very module, not of those inside, wait elsewhere.
///
/// # Source
/// `has_offloaded_params`.
pub fn has_offloaded_params(module: &dyn Module) -> bool {
    hooks_of(module).iter().any(AlignDevicesHook::offloads)
}

/// The hooks of this kind that a module has.
pub(super) fn hooks_of(module: &dyn Module) -> Vec<AlignDevicesHook> {
    let state = module.state();
    state.map_or_else(Vec::new, |state| state.hooks_of())
}
