//! The weights of a module in memory, by name.

use accelerate_torch::meta;
use indexmap::IndexMap;
use tch::{Kind, Tensor};

use super::compare::{Incoming, compare, copy_all, tensor_type};
use super::load::LoadOptions;
use super::report::{LoadReport, TensorType};
use crate::nn::{self, Module, require_state};
use crate::{Error, Result};

/// Tensors by their names, in order.
pub type StateDict = IndexMap<String, Tensor>;

/// Every parameter and persistent buffer of a module by name; tied parameters under each of their
/// names.
///
/// The tensors share their memory with the module and are outside of autograd: a step of training
/// changes them too. `shallow_clone` keeps that, `copy` does not.
///
/// # Errors
/// None that is known.
///
/// # Source
/// `Module.state_dict`, in its order: of each module the parameters, then the buffers, then the
/// modules inside.
pub fn state_dict(module: &dyn Module) -> Result<StateDict> {
    nn::all_state(module)
        .into_iter()
        .map(|(name, tensor)| Ok((name, tensor.f_detach()?)))
        .collect()
}

/// Copies tensors into the parameters and persistent buffers of a module.
///
/// The same rules hold as for files: see [`load_weights`](super::load_weights). Tensors may be on
/// another device and of another floating-point type.
///
/// ```
/// use accelerate::checkpoint::LoadOptions;
/// use accelerate::nn::{Factory, Linear, Module};
///
/// let (one, other) = (Linear::new(3, 2, &Factory::default())?, Linear::new(3, 2, &Factory::default())?);
/// let report = other.load_state_dict(&one.state_dict()?, &LoadOptions::strict())?;
/// assert!(report.fits());
/// assert_eq!(one.weight.tensor(), other.weight.tensor());
///
/// let wide = Linear::without_bias(4, 2, &Factory::default())?;
/// let error = wide.load_state_dict(&one.state_dict()?, &LoadOptions::strict()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the state dict does not fit `Linear`: 1 unexpected: `bias`; \
///      1 mismatched: `weight` (expected [2, 4], found [2, 3])"
/// );
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// [`Error::StateDoesNotFit`] naming everything that does not fit, before anything is copied;
/// [`Error::AmbiguousNames`] and [`Error::OnMeta`] as for files.
///
/// # Source
/// `Module.load_state_dict`.
pub fn load_state_dict(
    module: &dyn Module,
    state: &StateDict,
    options: &LoadOptions<'_>,
) -> Result<LoadReport> {
    require_state(module, "load_state_dict")?;
    let given: Vec<Given<'_>> = state
        .iter()
        .map(|(name, tensor)| Given { name, tensor })
        .collect();
    let (report, copies) = compare(module, &given, options)?;
    if !options.accepts(&report) {
        return Err(Error::StateDoesNotFit {
            class: module.class_name(),
            report: Box::new(report),
        });
    }
    let mut tensors = Vec::new();
    for (given, _) in &copies {
        if meta::is_meta(given.tensor)? {
            tensors.push(format!("`{}`", given.name));
        }
    }
    if !tensors.is_empty() {
        let operation = "load_state_dict";
        return Err(Error::OnMeta { operation, tensors });
    }
    copy_all(&copies)?;
    Ok(report)
}

/// One entry of a state dict.
struct Given<'s> {
    name: &'s str,
    tensor: &'s Tensor,
}

impl Incoming for Given<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn tensor_type(&self) -> Result<TensorType> {
        tensor_type(self.tensor)
    }

    fn kind(&self) -> Result<Option<Kind>> {
        Ok(Some(self.tensor.f_kind()?))
    }

    fn copy_to(&self, target: &Tensor) -> Result<()> {
        target.shallow_clone().f_copy_(self.tensor)?;
        Ok(())
    }
}
