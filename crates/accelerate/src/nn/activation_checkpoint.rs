//! Activations that are computed again in the backward pass rather than kept.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

use accelerate_torch::autograd::{self, BackwardContext};
use accelerate_torch::device::{Place, place};
use accelerate_torch::storage;
use tch::{Device, Kind, Tensor};

use super::surroundings::Surroundings;
use super::{Forward, Hook, HookId, Member, Module, ModuleState};
use crate::tree::{Parcel, Tree};
use crate::{Error, Result};

/// Where the inputs of a checkpointed module wait for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeptInputs {
    /// Where they are.
    #[default]
    OnDevice,
    /// In CPU memory, from which they are copied back.
    InCpuMemory,
}

/// Lets a module keep nothing of its forward pass but its inputs: a [`Hook`].
///
/// The forward pass runs without a graph. In the backward pass it runs again, with the random numbers
/// and the autocast that it had, and its gradients are computed from that. Losses and gradients are
/// the same to the last bit; the time is that of one more forward pass.
///
/// A module that changes a buffer in its forward pass, as a batch norm does its statistics, changes it
/// twice. Its inputs are of a type that can be taken apart ([`Tree::pack`]), which those of
/// `derive(Tree)` without skipped fields are.
///
/// # Source
/// `torch.utils.checkpoint.checkpoint` on `checkpoint_wrapper`. Differs: gradients of parameters leave
/// the module as those of any operation, so that data parallelism sees each of them once.
#[derive(Debug)]
pub struct ActivationCheckpoint {
    place: u64,
    inputs: KeptInputs,
}

/// Lets the module with this dotted name below `root` compute its activations again; the empty name
/// is the root's.
///
/// It is found again through `root`: once that is gone or no longer shared, the module keeps its
/// activations as usual. Forward and backward passes run on the thread of this call; on a GPU that
/// takes [`Accelerator::backward`](crate::Accelerator::backward).
///
/// ```
/// use std::rc::Rc;
///
/// use accelerate::nn::{Dropout, Forward, KeptInputs, Sequential, checkpoint_module};
/// use accelerate::tch::{Device, Kind, Tensor};
///
/// let model = Rc::new(Sequential::new().with(Dropout::new(0.5)?));
/// checkpoint_module(&model, "0", KeptInputs::OnDevice)?;
/// let x = Tensor::f_ones([8], (Kind::Float, Device::Cpu))?.f_set_requires_grad(true)?;
/// let out = model.call(&x)?;
/// out.f_sum(Kind::Float)?.f_backward()?;
/// // What was dropped has no gradient.
/// assert_eq!(x.grad(), out);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// [`Error::NoSuchMember`] with the names there are; [`Error::HookOnContainer`] for a list of modules.
/// The module itself fails where it changes its inputs in place, or where hooks look at the gradients
/// of its parameters on their way, which would run twice.
pub fn checkpoint_module<M: Module>(
    root: &Rc<M>,
    name: &str,
    inputs: KeptInputs,
) -> Result<HookId> {
    let module = root.get_submodule(name)?;
    module.add_hook(Rc::new(ActivationCheckpoint::new(root, name, inputs)))
}

/// Whether any module of this thread computes its activations again.
pub(crate) fn is_any_checkpointed() -> bool {
    PLACES.with_borrow(|places| !places.is_empty())
}

/// Where a module is found again, which autograd may ask on no other thread.
#[derive(Clone)]
struct ModulePlace {
    root: Weak<dyn Module>,
    name: String,
}

thread_local! {
    static PLACES: RefCell<HashMap<u64, ModulePlace>> = RefCell::default();
}

/// Runs `run` with the module at a place; `None` where there is none of this type.
fn with_module<M: Module, T>(place: u64, run: impl FnOnce(&M) -> T) -> Option<T> {
    let known = PLACES.with_borrow(|places| places.get(&place).cloned())?;
    let root = known.root.upgrade()?;
    let found = below(&*root, &known.name)?;
    found.downcast_ref::<M>().map(run)
}

/// The module of this name, found without listing all others.
fn below<'m>(module: &'m dyn Module, path: &str) -> Option<&'m dyn Module> {
    if path.is_empty() {
        return Some(module);
    }
    let mut found = None;
    module.members(&mut |name, member| {
        let (Member::Module(child), Some(rest)) = (member, path.strip_prefix(name)) else {
            return;
        };
        if found.is_some() {
            return;
        }
        if rest.is_empty() {
            found = Some(child);
        } else if let Some(rest) = rest.strip_prefix('.') {
            found = below(child, rest);
        }
    });
    found
}

impl ActivationCheckpoint {
    fn new<M: Module>(root: &Rc<M>, name: &str, inputs: KeptInputs) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let place = NEXT.fetch_add(1, Ordering::Relaxed);
        let root: Rc<dyn Module> = Rc::<M>::clone(root);
        let known = ModulePlace {
            root: Rc::downgrade(&root),
            name: name.to_owned(),
        };
        PLACES.with_borrow_mut(|places| places.insert(place, known));
        Self { place, inputs }
    }

    /// The forward pass of a module that this [applies to](Self::applies_to).
    pub(super) fn forward<M: Forward>(&self, module: &M, input: M::Input) -> Result<M::Output> {
        let parameters = trained(module)?;
        let kept = Inputs::of(&input)?;
        if parameters.is_empty() && !kept.wants.contains(&true) {
            return module.forward(input);
        }
        let place = parameters.first().or(kept.tensors.first());
        let surroundings = Surroundings::around(place)?;
        let mut output = surroundings.without_graph(|| module.forward(input))?;
        kept.check_unchanged(module.class_name())?;
        let outputs = Outputs::of(&output, &kept)?;
        let again = Again {
            place: self.place,
            class: module.class_name(),
            parcel: kept.parcel,
            devices: kept.devices,
            wants: kept.wants,
            parameters,
            at: outputs.at,
            surroundings,
        };
        again.tie::<M>(&mut output, kept.tensors, outputs.tensors, self.inputs)?;
        Ok(output)
    }

    /// Whether something is recorded, and the module will be found again as the one that it is.
    pub(super) fn applies_to<M: Module>(&self, module: &M) -> bool {
        if !autograd::is_enabled() {
            return false;
        }
        let identity = |module: &M| module.state().map(ModuleState::identity);
        with_module(self.place, identity).is_some_and(|found| found == identity(module))
    }
}

impl Drop for ActivationCheckpoint {
    fn drop(&mut self) {
        // Where the thread is ending, there is nothing left to forget.
        let _gone = PLACES.try_with(|places| places.borrow_mut().remove(&self.place));
    }
}

impl Hook for ActivationCheckpoint {
    fn checkpoint(&self) -> Option<&ActivationCheckpoint> {
        Some(self)
    }
}

/// The parameters that get gradients.
fn trained(module: &dyn Module) -> Result<Vec<Tensor>> {
    let mut found = Vec::new();
    for (name, parameter) in module.named_parameters() {
        let tensor = parameter.tensor();
        if !tensor.requires_grad() {
            continue;
        }
        if tensor.is_leaf() && autograd::has_gradient_hooks(tensor)? {
            return Err(Error::Argument {
                operation: "activation checkpointing",
                expected: "parameters without hooks on their gradients, which would run twice"
                    .to_owned(),
                found: format!("hooks on `{name}` of a `{}`", module.class_name()),
            });
        }
        found.push(tensor.shallow_clone());
    }
    Ok(found)
}

/// The inputs of a call, taken apart.
struct Inputs {
    /// Everything but the tensors.
    parcel: Parcel,
    tensors: Vec<Tensor>,
    versions: Vec<i64>,
    /// Where each was, if that is a place to which it can go back.
    devices: Vec<Option<Device>>,
    /// Which of them get gradients.
    wants: Vec<bool>,
}

impl Inputs {
    fn of(input: &dyn Tree) -> Result<Self> {
        let mut parcel = Parcel::default();
        input.pack(&mut parcel).map_err(|error| Error::Argument {
            operation: "activation checkpointing",
            expected: "inputs that can be taken apart and put together again, as those of \
                       `derive(Tree)` without skipped fields"
                .to_owned(),
            found: error.to_string(),
        })?;
        let tensors = parcel.take_tensors();
        let versions = versions(&tensors)?;
        Ok(Self {
            parcel,
            versions,
            devices: tensors.iter().map(device).collect::<Result<_>>()?,
            wants: tensors.iter().map(Tensor::requires_grad).collect(),
            tensors,
        })
    }

    fn check_unchanged(&self, class: &'static str) -> Result<()> {
        if versions(&self.tensors)? == self.versions {
            return Ok(());
        }
        Err(Error::Argument {
            operation: "activation checkpointing",
            expected: "a module that leaves its inputs as they are".to_owned(),
            found: format!("a `{class}` that changes them in place"),
        })
    }
}

fn device(tensor: &Tensor) -> Result<Option<Device>> {
    Ok(match place(tensor)? {
        Place::Cpu => Some(Device::Cpu),
        Place::Cuda(index) => Some(Device::Cuda(index)),
        Place::Mps => Some(Device::Mps),
        _ => None,
    })
}

fn versions(tensors: &[Tensor]) -> Result<Vec<i64>> {
    let all = tensors.iter();
    all.map(|tensor| Ok(tensor.f_internal_version()?)).collect()
}

/// What a call computed: floating-point tensors that are none of its inputs.
struct Outputs {
    tensors: Vec<Tensor>,
    /// Their numbers among all tensors of the output.
    at: Vec<usize>,
}

impl Outputs {
    fn of(output: &dyn Tree, inputs: &Inputs) -> Result<Self> {
        let given: Vec<usize> = inputs.tensors.iter().map(storage::identity).collect();
        let (mut tensors, mut at, mut number) = (Vec::new(), Vec::new(), 0);
        output.visit(&mut |leaf| {
            if is_float(leaf.f_kind()?) && !given.contains(&storage::identity(leaf)) {
                tensors.push(leaf.shallow_clone());
                at.push(number);
            }
            number += 1;
            Ok(())
        })?;
        Ok(Self { tensors, at })
    }
}

fn is_float(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Float | Kind::Half | Kind::BFloat16 | Kind::Double
    )
}

/// What a call needs to be made again.
struct Again {
    place: u64,
    class: &'static str,
    parcel: Parcel,
    devices: Vec<Option<Device>>,
    wants: Vec<bool>,
    parameters: Vec<Tensor>,
    at: Vec<usize>,
    surroundings: Surroundings,
}

impl Again {
    /// Puts what was computed into the graph, as one operation on inputs and parameters.
    fn tie<M: Forward>(
        self,
        output: &mut dyn Tree,
        inputs: Vec<Tensor>,
        computed: Vec<Tensor>,
        keep: KeptInputs,
    ) -> Result<()> {
        if computed.is_empty() {
            return Ok(());
        }
        let wanted = inputs.iter().zip(&self.wants).filter(|(_, wants)| **wants);
        let mut sources: Vec<Tensor> = wanted.map(|(input, _)| input.shallow_clone()).collect();
        sources.extend(self.parameters.iter().map(Tensor::shallow_clone));
        let kept = match keep {
            KeptInputs::OnDevice => inputs,
            KeptInputs::InCpuMemory => on_cpu(&inputs)?,
        };
        let at = self.at.clone();
        let sources: Vec<&Tensor> = sources.iter().collect();
        let tied = autograd::function(
            &sources,
            move |context, _| {
                context.save(&kept.iter().collect::<Vec<_>>())?;
                Ok(computed)
            },
            move |context, given| Ok(self.gradients::<M>(context, given)?),
        )?;
        let mut places = at.into_iter().zip(tied).peekable();
        let mut number = 0;
        output.visit_mut(&mut |leaf| {
            if let Some((_, tensor)) = places.next_if(|(place, _)| *place == number) {
                *leaf = tensor;
            }
            number += 1;
            Ok(())
        })
    }

    /// Makes the call again, with a graph this time, and goes back through it.
    fn gradients<M: Forward>(
        &self,
        context: &BackwardContext,
        given: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let fresh = self.fresh(&context.saved()?)?;
        let input = M::Input::unpack(&mut self.parcel.refilled(&fresh)?)?;
        let output = self.surroundings.again(|| {
            let run = |module: &M| tch::with_grad(|| module.forward(input));
            with_module(self.place, run).unwrap_or_else(|| Err(self.is_lost()))
        })?;
        let (mut outputs, mut weights) = (Vec::new(), Vec::new());
        let mut places = self.at.iter().zip(given).peekable();
        let mut number = 0;
        output.visit(&mut |leaf| {
            if let Some((_, weight)) = places.next_if(|(place, _)| **place == number)
                && let Some(weight) = weight
                && leaf.requires_grad()
            {
                outputs.push(leaf.shallow_clone());
                weights.push(weight.shallow_clone());
            }
            number += 1;
            Ok(())
        })?;
        let wanted = fresh.iter().zip(&self.wants).filter(|(_, wants)| **wants);
        let mut sources: Vec<Tensor> = wanted.map(|(input, _)| input.shallow_clone()).collect();
        sources.extend(self.parameters.iter().map(Tensor::shallow_clone));
        if outputs.is_empty() {
            return Ok(sources.iter().map(|_| None).collect());
        }
        Ok(autograd::gradients(&outputs, &weights, &sources)?)
    }

    /// The inputs as leaves of a new graph, where they were.
    fn fresh(&self, saved: &[Tensor]) -> Result<Vec<Tensor>> {
        let places = self.devices.iter().zip(&self.wants);
        let fresh = saved.iter().zip(places).map(|(tensor, (device, wants))| {
            let mut own = tensor.f_detach()?;
            if let Some(device) = device {
                own = own.f_to_device(*device)?;
            }
            Ok(match wants {
                true => own.f_set_requires_grad(true)?,
                false => own,
            })
        });
        fresh.collect()
    }

    fn is_lost(&self) -> Error {
        Error::Argument {
            operation: "activation checkpointing",
            expected: format!(
                "the `{}` where it was, on the thread that called it; on a GPU, backward passes \
                 through `Accelerator::backward`",
                self.class
            ),
            found: "a backward pass that does not find it".to_owned(),
        }
    }
}

fn on_cpu(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tch::no_grad(|| {
        let all = tensors.iter();
        all.map(|tensor| Ok(tensor.f_detach()?.f_to_device(Device::Cpu)?))
            .collect()
    })
}

#[cfg(test)]
mod tests;
