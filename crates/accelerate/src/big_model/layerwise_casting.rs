//! Weights in a small type, computed with in a larger one.

use std::any::Any;
use std::cell::RefCell;

use accelerate_torch::{meta, storage};
use tch::{Kind, Tensor};

use super::weights::direct_tensors;
use crate::nn::{Hook, Module, require_values};
use crate::tree::Tree;
use crate::{Error, Result};

/// Layers that are cast: those in which nearly all weights of a model are.
const CAST: [&str; 7] = [
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
];

/// How [`attach_layerwise_casting_hooks`] casts.
#[derive(Debug, Clone)]
pub struct LayerwiseCasting {
    /// The type of weights that wait, such as `Float8e4m3fn`.
    pub storage: Kind,
    /// The type of weights that are computed with.
    pub compute: Kind,
    /// Modules whose dotted name has one of these texts in it are left alone, with all below.
    pub skip_names: Vec<String>,
    /// Modules of these classes are left alone, with all below.
    pub skip_classes: Vec<String>,
}

/// Keeps the weights of linear layers and convolutions in a small type, and computes with them in a
/// larger one: each layer's are cast when it is called, and are in the small type again afterwards.
///
/// Norms and embeddings keep their type. Returns how many layers are cast.
///
/// # Errors
/// [`Error::Argument`] for types that are no floating-point types; [`Error::OnMeta`] for a model
/// without values; if memory is short.
///
/// # Source
/// `attach_layerwise_casting_hooks`. Differs: names are skipped by a text that they contain, not by a
/// regular expression.
pub fn attach_layerwise_casting_hooks(
    model: &dyn Module,
    casting: &LayerwiseCasting,
) -> Result<usize> {
    for kind in [casting.storage, casting.compute] {
        if !is_float(kind) {
            return Err(Error::Argument {
                operation: "attach_layerwise_casting_hooks",
                expected: "floating-point types to keep weights in and to compute in".to_owned(),
                found: format!("`{kind:?}`"),
            });
        }
    }
    require_values(model, "attach_layerwise_casting_hooks")?;
    let mut skipped: Vec<String> = Vec::new();
    let mut cast = 0;
    for (name, module) in model.named_modules() {
        let is_inside = |outer: &String| outer.is_empty() || name.starts_with(&format!("{outer}."));
        if skipped.iter().any(is_inside) {
            continue;
        }
        let class = module.class_name();
        let by_name = casting
            .skip_names
            .iter()
            .any(|part| name.contains(part.as_str()));
        if by_name || casting.skip_classes.iter().any(|skipped| skipped == class) {
            skipped.push(name);
        } else if CAST.contains(&class) {
            attach(module, casting)?;
            cast += 1;
        }
    }
    Ok(cast)
}

fn attach(module: &dyn Module, casting: &LayerwiseCasting) -> Result<()> {
    for tensor in floats(module)? {
        let small = tch::no_grad(|| tensor.f_detach()?.f_to_kind(casting.storage))?;
        storage::replace(&tensor, &small)?;
    }
    module.add_hook(std::rc::Rc::new(Cast {
        compute: casting.compute,
        kept: RefCell::default(),
    }))?;
    Ok(())
}

/// The floating-point tensors that a module holds itself.
fn floats(module: &dyn Module) -> Result<Vec<Tensor>> {
    let mut found = Vec::new();
    for direct in direct_tensors("", module) {
        if is_float(direct.tensor.f_kind()?) && !meta::is_meta(&direct.tensor)? {
            found.push(direct.tensor);
        }
    }
    Ok(found)
}

fn is_float(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Half
            | Kind::BFloat16
            | Kind::Float
            | Kind::Double
            | Kind::Float8e5m2
            | Kind::Float8e4m3fn
            | Kind::Float8e5m2fnuz
            | Kind::Float8e4m3fnuz
    )
}

/// The hook of one layer.
#[derive(Debug)]
struct Cast {
    compute: Kind,
    /// For each call that is under way, the tensors of the module with what they look at in between.
    kept: RefCell<Vec<Vec<(Tensor, Tensor)>>>,
}

impl Cast {
    fn put_back(&self) -> Result<()> {
        let kept = self.kept.borrow_mut().pop().unwrap_or_default();
        let mut back = kept.iter();
        back.try_for_each(|(tensor, small)| Ok(storage::replace(tensor, small)?))
    }
}

impl Hook for Cast {
    fn before_forward(&self, module: &dyn Module, _input: &mut dyn Tree) -> Result<()> {
        let mut kept = Vec::new();
        for tensor in floats(module)? {
            let small = tensor.f_detach()?;
            let large = tch::no_grad(|| small.f_to_kind(self.compute))?;
            storage::replace(&tensor, &large)?;
            kept.push((tensor, small));
        }
        self.kept.borrow_mut().push(kept);
        Ok(())
    }

    fn after_forward(&self, _module: &dyn Module, _output: &mut dyn Tree) -> Result<()> {
        self.put_back()
    }

    fn abandon_forward(&self, module: &dyn Module) {
        if let Err(error) = self.put_back() {
            tracing::warn!(
                class = module.class_name(),
                "weights stay in the type that was computed in: {error}"
            );
        }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
