use std::cell::RefCell;

use accelerate_torch::autocast::{self, AutocastGuard};
use tch::{Device, Kind};

use crate::Result;
use crate::nn::{Hook, Module};
use crate::tree::Tree;

/// How autocast behaves.
///
/// # Source
/// `accelerate.AutocastKwargs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutocastKwargs {
    /// Whether operations are cast. Off inside of another autocast gives full precision back.
    pub enabled: bool,
    /// Whether a weight that was cast is kept for its next use in the same pass; `None`
    /// leaves that as it is, which is on where nothing else was set.
    pub cache_enabled: Option<bool>,
}

impl Default for AutocastKwargs {
    fn default() -> Self {
        Self {
            enabled: true,
            cache_enabled: None,
        }
    }
}

fn enter(device: Device, kind: Kind, kwargs: AutocastKwargs) -> Result<AutocastGuard> {
    let cache = match kwargs.cache_enabled {
        Some(cache) => cache,
        None => autocast::state(device)?.cache,
    };
    Ok(AutocastGuard::enter(device, kwargs.enabled, kind, cache)?)
}

/// A part of the program in which operations are cast; it ends where this is dropped.
#[derive(Debug)]
#[must_use = "autocast ends as soon as this is dropped"]
pub struct AutocastScope(Option<AutocastGuard>);

impl AutocastScope {
    pub(super) fn new(device: Device, kind: Option<Kind>, kwargs: AutocastKwargs) -> Result<Self> {
        let guard = kind.map(|kind| enter(device, kind, kwargs)).transpose()?;
        Ok(Self(guard))
    }

    /// Whether operations are cast in here because of this scope.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.0.is_some()
    }
}

/// Autocast around a model's forward pass.
///
/// A hook on its root: operations inside are cast, and outputs become float32 afterwards
/// where that is wanted. A pass that fails leaves autocast as it was before.
#[derive(Debug)]
pub struct AutocastHook {
    device: Device,
    kind: Kind,
    kwargs: AutocastKwargs,
    convert: bool,
    /// One for each pass that runs; a model may call itself.
    running: RefCell<Vec<AutocastGuard>>,
}

impl AutocastHook {
    /// Casts to `kind` on `device`; `convert` makes outputs float32.
    #[must_use]
    pub fn new(device: Device, kind: Kind, kwargs: AutocastKwargs, convert: bool) -> Self {
        Self {
            device,
            kind,
            kwargs,
            convert,
            running: RefCell::default(),
        }
    }

    fn leave(&self) {
        let guard = self.running.borrow_mut().pop();
        drop(guard);
    }
}

impl Hook for AutocastHook {
    fn before_forward(&self, _module: &dyn Module, _input: &mut dyn Tree) -> Result<()> {
        let guard = enter(self.device, self.kind, self.kwargs)?;
        self.running.borrow_mut().push(guard);
        Ok(())
    }

    fn after_forward(&self, _module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        self.leave();
        if self.convert {
            convert_outputs_to_fp32(output)?;
        }
        Ok(())
    }

    fn abandon_forward(&self, _module: &dyn Module) {
        self.leave();
    }
}

/// Makes every float16 and bfloat16 tensor of a tree float32; others stay as they are.
///
/// # Errors
/// What libtorch reports.
///
/// # Source
/// `accelerate.utils.convert_to_fp32`.
pub fn convert_outputs_to_fp32(tree: &mut dyn Tree) -> Result<()> {
    tree.visit_mut(&mut |leaf| {
        if matches!(leaf.f_kind()?, Kind::Half | Kind::BFloat16) {
            *leaf = leaf.f_to_kind(Kind::Float)?;
        }
        Ok(())
    })
}
