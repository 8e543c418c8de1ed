//! Hooks around the backward pass of a module.
//!
//! A module has no backward pass of its own: autograd knows operations, not modules. So the
//! module's inputs and outputs each go through an operation that changes nothing. Its gradient at
//! the outputs is where the module's backward pass begins, at the inputs where it ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerate_torch::autograd;
use accelerate_torch::device::{Place, place};
use tch::{Device, Kind, Tensor};

use super::HookId;
use crate::tree::Tree;
use crate::{Error, Result};

/// The gradients of a module's inputs or outputs: one entry for each tensor, `None` where there is
/// no gradient.
type Gradients = Vec<Option<Tensor>>;

type Hooks = Arc<[Arc<dyn BackwardHook>]>;

/// Code that runs around the backward pass of a module.
///
/// Both methods do nothing unless written. Gradients stand in the order in which the tensors stand
/// in the module's output and input ([`Tree::visit`]); a tensor that needs no gradient has `None`.
/// A hook may put other gradients in place; hooks after it, and autograd, go on with those.
///
/// The hooks of a pass are those that the module had when it was called. They run on the thread of
/// the backward pass, which on CUDA is one of libtorch's; so they can be sent, and learn the
/// module's class instead of getting the module.
///
/// # Source
/// `register_full_backward_pre_hook` and `register_full_backward_hook`, in one. As there, `before`
/// runs when the gradients of all outputs are known, `after` when those of all inputs are; where
/// no input needs a gradient, `after` follows `before` at once. An output that took no part has
/// `None` and goes on with zeros; an input that took no part has zeros. Differs: an input that
/// needs no gradient has `None` also beside inputs that do; tensors inside structs, lists and maps
/// are listed too, and values that are no tensors have no place in the list.
pub trait BackwardHook: Send + Sync {
    /// Runs before the backward pass of the module, with the gradients of its outputs.
    ///
    /// # Errors
    /// An error ends the backward pass, which returns it.
    fn before_backward(
        &self,
        class: &'static str,
        grad_output: &mut [Option<Tensor>],
    ) -> Result<()> {
        let _ = (class, grad_output);
        Ok(())
    }

    /// Runs after the backward pass of the module, with the gradients of its inputs and those of
    /// its outputs as `before_backward` left them.
    ///
    /// # Errors
    /// An error ends the backward pass, which returns it.
    fn after_backward(
        &self,
        class: &'static str,
        grad_input: &mut [Option<Tensor>],
        grad_output: &[Option<Tensor>],
    ) -> Result<()> {
        let _ = (class, grad_input, grad_output);
        Ok(())
    }
}

/// One call of a module whose backward pass has hooks.
pub(super) struct BackwardPass {
    shared: Shared,
    /// Whether a gradient will reach the inputs.
    reaches_inputs: bool,
    inputs: usize,
}

/// What the two ends of the pass share.
#[derive(Clone)]
struct Shared {
    class: &'static str,
    hooks: Hooks,
    /// The gradients of the outputs, from the one end to the other.
    grad_output: Arc<Mutex<Option<Gradients>>>,
}

impl BackwardPass {
    /// Ties the end of the backward pass to the inputs; nothing where there are no hooks or
    /// nothing is recorded.
    pub(super) fn begin(
        class: &'static str,
        hooks: &[(HookId, Arc<dyn BackwardHook>)],
        input: &mut dyn Tree,
    ) -> Result<Option<Self>> {
        if hooks.is_empty() || !autograd::is_enabled() {
            return Ok(None);
        }
        let shared = Shared {
            class,
            hooks: hooks.iter().map(|(_, hook)| Arc::clone(hook)).collect(),
            grad_output: Arc::default(),
        };
        let end = shared.clone();
        let passage = pass_through(input, move |gradients, absent| {
            absent
                .fill(gradients)
                .and_then(|gradients| end.after(gradients))
        })?;
        Ok(Some(Self {
            shared,
            reaches_inputs: passage.recorded,
            inputs: passage.tensors,
        }))
    }

    /// Ties the beginning of the backward pass to the outputs.
    pub(super) fn end(self, output: &mut dyn Tree) -> Result<()> {
        let Self {
            shared,
            reaches_inputs,
            inputs,
        } = self;
        pass_through(output, move |gradients, absent| {
            let grad_output = shared.before(gradients)?;
            if !reaches_inputs {
                shared.after_without_inputs(inputs, &grad_output)?;
            }
            absent.fill(grad_output)
        })?;
        Ok(())
    }
}

impl Shared {
    fn before(&self, mut grad_output: Gradients) -> Result<Gradients> {
        for hook in &*self.hooks {
            hook.before_backward(self.class, &mut grad_output)?;
        }
        *self.grad_output() = Some(clones(&grad_output));
        Ok(grad_output)
    }

    fn after(&self, mut grad_input: Gradients) -> Result<Gradients> {
        // A gradient that came past the outputs belongs to no backward pass of this module.
        let taken = self.grad_output().take();
        if let Some(grad_output) = taken {
            for hook in &*self.hooks {
                hook.after_backward(self.class, &mut grad_input, &grad_output)?;
            }
        }
        Ok(grad_input)
    }

    fn after_without_inputs(&self, inputs: usize, grad_output: &[Option<Tensor>]) -> Result<()> {
        self.grad_output().take();
        for hook in &*self.hooks {
            let mut grad_input: Gradients = (0..inputs).map(|_| None).collect();
            hook.after_backward(self.class, &mut grad_input, grad_output)?;
            if grad_input.iter().any(Option::is_some) {
                return Err(Error::Argument {
                    operation: "BackwardHook::after_backward",
                    expected: format!("no gradient for inputs of `{}` that need none", self.class),
                    found: "a gradient".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn grad_output(&self) -> MutexGuard<'_, Option<Gradients>> {
        // The value is replaced as a whole, so a panic elsewhere cannot have left half of it.
        self.grad_output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn clones(gradients: &[Option<Tensor>]) -> Gradients {
    gradients
        .iter()
        .map(|gradient| gradient.as_ref().map(Tensor::shallow_clone))
        .collect()
}

/// What [`pass_through`] found.
struct Passage {
    /// How many tensors there are.
    tensors: usize,
    /// Whether one of them needs a gradient, so that `backward` will run.
    recorded: bool,
}

/// Lets all tensors of a tree that need a gradient pass through one operation that changes
/// nothing, and whose gradient is what `backward` makes of it.
fn pass_through(
    tree: &mut dyn Tree,
    mut backward: impl FnMut(Gradients, &Absent) -> Result<Gradients> + Send + 'static,
) -> Result<Passage> {
    let mut passing = Vec::new();
    let mut places = Vec::new();
    let mut tensors = 0;
    tree.visit(&mut |leaf| {
        if leaf.requires_grad() {
            passing.push(leaf.shallow_clone());
            places.push(tensors);
        }
        tensors += 1;
        Ok(())
    })?;
    let recorded = !passing.is_empty();
    if !recorded {
        return Ok(Passage { tensors, recorded });
    }
    let absent = Absent::of(&passing, &places)?;
    let at = places.clone();
    let passed = autograd::function(
        &passing.iter().collect::<Vec<_>>(),
        |_, inputs| Ok(inputs.iter().map(Tensor::shallow_clone).collect()),
        move |_, arrived| {
            let mut gradients: Gradients = (0..tensors).map(|_| None).collect();
            for (&place, gradient) in at.iter().zip(arrived) {
                if let Some(slot) = gradients.get_mut(place) {
                    *slot = gradient.as_ref().map(Tensor::shallow_clone);
                }
            }
            let mut changed = backward(gradients, &absent)?;
            Ok(at
                .iter()
                .map(|&place| changed.get_mut(place).and_then(Option::take))
                .collect())
        },
    )?;
    let mut passed = places.into_iter().zip(passed);
    let mut next = passed.next();
    let mut number = 0;
    tree.visit_mut(&mut |leaf| {
        if next.as_ref().is_some_and(|(place, _)| *place == number) {
            if let Some((_, tensor)) = next.take() {
                *leaf = tensor;
            }
            next = passed.next();
        }
        number += 1;
        Ok(())
    })?;
    Ok(Passage { tensors, recorded })
}

/// What gradients stand for where none arrives, without keeping the tensors themselves.
struct Absent(Vec<Zeros>);

struct Zeros {
    place: usize,
    shape: Vec<i64>,
    kind: Kind,
    device: Device,
}

impl Absent {
    fn of(tensors: &[Tensor], places: &[usize]) -> Result<Self> {
        let mut all = Vec::with_capacity(tensors.len());
        for (tensor, &at) in tensors.iter().zip(places) {
            let device = match place(tensor)? {
                Place::Cpu => Device::Cpu,
                Place::Cuda(index) => Device::Cuda(index),
                Place::Mps => Device::Mps,
                // Without memory there are no zeros.
                _ => continue,
            };
            all.push(Zeros {
                place: at,
                shape: tensor.size(),
                kind: tensor.f_kind()?,
                device,
            });
        }
        Ok(Self(all))
    }

    /// Puts zeros where a tensor that needs a gradient has none.
    fn fill(&self, mut gradients: Gradients) -> Result<Gradients> {
        for zeros in &self.0 {
            if let Some(slot @ None) = gradients.get_mut(zeros.place) {
                let options = (zeros.kind, zeros.device);
                *slot = Some(Tensor::f_zeros(zeros.shape.as_slice(), options)?);
            }
        }
        Ok(gradients)
    }
}
