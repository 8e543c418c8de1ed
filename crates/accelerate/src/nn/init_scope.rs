//! Where the tensors of a model go while it is built.

use std::cell::Cell;

use accelerate_plan::env::{self, Environment};
use accelerate_torch::meta;
use tch::{Device, Tensor};

use crate::{Error, Result};

thread_local! {
    static PLACEMENT: Cell<Option<Placement>> = const { Cell::new(None) };
    static SHAPES_ONLY: Cell<bool> = const { Cell::new(false) };
}

/// What the innermost scope of this thread says.
#[derive(Debug, Clone, Copy)]
struct Placement {
    target: Target,
    include_buffers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    Meta,
    Device(Device),
}

/// Builds a model whose parameters have shapes and types but no memory.
///
/// Buffers keep their values, so what is computed from the configuration, such as tables of
/// positions, is there; [`InitScope::include_buffers`] takes their memory too. A model of any size
/// is built in milliseconds. [`Module::materialize`](super::Module::materialize) gives it memory.
///
/// ```
/// use accelerate::nn::{Factory, Linear, Module, init_empty_weights};
///
/// let layer = init_empty_weights(|| Linear::new(1_000_000, 100_000, &Factory::default()))?;
/// assert_eq!(layer.num_parameters(), 100_000_100_000);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// What `build` returns, and a variable `ACCELERATE_INIT_INCLUDE_BUFFERS` that is neither true nor
/// false.
///
/// # Source
/// `init_empty_weights`. Differs: a [`Factory`](super::Factory) makes parameters without memory
/// from the start, instead of making them and giving the memory back. With buffers included, only
/// tensors of modules have no memory; other tensors that `build` makes are as usual.
pub fn init_empty_weights<T, E: From<Error>>(build: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    InitScope::meta().build(build)
}

/// Where parameters, and if wanted buffers, go while a model is built.
///
/// Scopes may be nested; the innermost counts. A scope holds for its thread.
///
/// # Source
/// `init_on_device`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "a scope does nothing until something is built in it"]
pub struct InitScope {
    target: Target,
    include_buffers: Option<bool>,
}

impl InitScope {
    /// Parameters get no memory.
    pub fn meta() -> Self {
        Self {
            target: Target::Meta,
            include_buffers: None,
        }
    }

    /// Parameters go to `device`, whatever their factory says.
    pub fn device(device: Device) -> Self {
        Self {
            target: Target::Device(device),
            include_buffers: None,
        }
    }

    /// Whether buffers go there too. Where this is not called,
    /// `ACCELERATE_INIT_INCLUDE_BUFFERS` decides, and without it they do not.
    pub fn include_buffers(self, include_buffers: bool) -> Self {
        Self {
            include_buffers: Some(include_buffers),
            ..self
        }
    }

    /// Builds something in this scope.
    ///
    /// # Errors
    /// What `build` returns; an absent device; and a variable
    /// `ACCELERATE_INIT_INCLUDE_BUFFERS` that is neither true nor false.
    pub fn build<T, E: From<Error>>(self, build: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let include_buffers = match self.include_buffers {
            Some(include_buffers) => include_buffers,
            None => Environment::from_process()
                .get(&env::INIT_INCLUDE_BUFFERS)
                .map_err(Error::from)?
                .unwrap_or(false),
        };
        if let Target::Device(device) = self.target {
            // Found here, so that placing a tensor need not fail later.
            let _probe = Tensor::f_empty([0], (tch::Kind::Float, device))
                .map_err(|error| E::from(Error::Tensor(error)))?;
        }
        let _restore = Restore::set(Placement {
            target: self.target,
            include_buffers,
        });
        build()
    }
}

/// Puts the outer scope back, also when `build` panics.
struct Restore(Option<Placement>);

impl Restore {
    fn set(placement: Placement) -> Self {
        Self(PLACEMENT.replace(Some(placement)))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        PLACEMENT.set(self.0);
    }
}

/// Whether the scope decides that parameters have no memory; nothing without a scope.
pub(super) fn parameters_on_meta() -> Option<bool> {
    PLACEMENT
        .get()
        .map(|placement| placement.target == Target::Meta)
}

/// Where the scope makes parameters with memory.
pub(super) fn parameter_device() -> Option<Device> {
    match PLACEMENT.get()?.target {
        Target::Device(device) => Some(device),
        Target::Meta => None,
    }
}

/// The tensor of a new parameter, where the scope wants it.
pub(super) fn parameter(tensor: Tensor) -> Tensor {
    match PLACEMENT.get() {
        None => tensor,
        Some(placement) => placed(tensor, placement.target),
    }
}

/// The tensor of a new buffer, where the scope wants it.
pub(super) fn buffer(tensor: Tensor) -> Tensor {
    match PLACEMENT.get() {
        Some(placement) if placement.include_buffers => placed(tensor, placement.target),
        _ => tensor,
    }
}

/// A tensor that is elsewhere, as a leaf with the same gradient settings; one that cannot be moved
/// stays where it is.
fn placed(tensor: Tensor, target: Target) -> Tensor {
    if meta::is_meta(&tensor).unwrap_or(true) {
        return tensor;
    }
    let trained = tensor.requires_grad();
    let moved = tch::no_grad(|| match target {
        Target::Meta => meta::like(&tensor).ok(),
        Target::Device(device) if tensor.device() == device => None,
        Target::Device(device) => tensor.f_to_device(device).ok(),
    });
    match moved.map(|moved| moved.f_set_requires_grad(trained)) {
        Some(Ok(moved)) => moved,
        _ => tensor,
    }
}

/// Lets a model on the meta device be called with inputs on the meta device, to learn the shapes
/// of its outputs.
///
/// Elsewhere a parameter without values refuses to be computed with, because libtorch often does
/// not: it would return made-up values, or crash. Layers of [`nn`](super) give the shape of their
/// output also where libtorch has no answer without values; such outputs record no gradients.
///
/// ```
/// use accelerate::nn::{Factory, Forward, Linear, shapes_only};
/// use accelerate::tch::Tensor;
///
/// let factory = Factory::default().on_meta();
/// let layer = Linear::new(8, 2, &factory)?;
/// let input = factory.empty(&[3, 8])?;
/// assert_eq!(shapes_only(|| layer.call(&input))?.size(), [3, 2]);
///
/// let error = layer.call(Tensor::from_slice(&[1f32; 8])).unwrap_err().to_string();
/// assert!(error.contains("meta device"), "{error}");
/// # Ok::<(), accelerate::Error>(())
/// ```
pub fn shapes_only<T>(compute: impl FnOnce() -> T) -> T {
    struct Outer(bool);
    impl Drop for Outer {
        fn drop(&mut self) {
            SHAPES_ONLY.set(self.0);
        }
    }
    let _outer = Outer(SHAPES_ONLY.replace(true));
    compute()
}

/// Whether [`shapes_only`] is running.
pub(super) fn computes_shapes() -> bool {
    SHAPES_ONLY.get()
}
