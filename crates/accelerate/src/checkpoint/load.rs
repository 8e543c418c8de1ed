//! From a file into a module.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use accelerate_formats::{Dtype, WeightTensor, Weights};
use accelerate_torch::storage;
use tch::Tensor;

use super::dtype::{can_become, dtype_of, kind_of};
use super::report::{LoadReport, Mismatch, TensorType};
use super::wrappers::without_wrappers;
use crate::nn::Module;
use crate::{Error, Result, nn};

/// Gives the module's name for a name in a file, or `None` for a tensor to be ignored.
type Rename<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// How closely a file of weights has to fit the module.
///
/// The default is strict: every name of the one is a name of the other.
#[derive(Clone, Default)]
pub struct LoadOptions<'a> {
    lenient: bool,
    optional: Vec<String>,
    rename: Option<&'a Rename<'a>>,
}

impl<'a> LoadOptions<'a> {
    /// Every name must be on both sides.
    pub fn strict() -> Self {
        Self::default()
    }

    /// Missing and unexpected names are only reported. A shape or type that does not fit stays
    /// an error, as in PyTorch.
    pub fn lenient() -> Self {
        Self {
            lenient: true,
            ..Self::default()
        }
    }

    /// Allows the file to lack everything below the dotted name `prefix`.
    #[must_use]
    pub fn with_optional(mut self, prefix: impl Into<String>) -> Self {
        self.optional.push(prefix.into());
        self
    }

    /// Gives each name of the file the module's name for it; `None` ignores the tensor.
    #[must_use]
    pub fn with_rename(mut self, rename: &'a Rename<'a>) -> Self {
        self.rename = Some(rename);
        self
    }

    fn is_optional(&self, name: &str) -> bool {
        self.optional.iter().any(|prefix| {
            name.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    fn name_for(&self, name: &str) -> Option<String> {
        self.rename
            .map_or_else(|| Some(name.to_owned()), |rename| rename(name))
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LoadOptions");
        shown
            .field("lenient", &self.lenient)
            .field("optional", &self.optional)
            .finish_non_exhaustive()
    }
}

/// Copies weights into the parameters and persistent buffers of a module.
///
/// Values are cast to the module's type and go to its device; they are read from the mapped file
/// without another copy in between, unless a torch file holds a view that is not in row-major order.
/// A name that only a wrapper (`module.`, `_orig_mod.`) keeps from fitting is taken without it, with
/// a warning, unless the file has that name too.
/// A tied parameter may stand in the file under any of its
/// names. Everything is compared before the first copy, so a module is never half loaded for want
/// of a name.
///
/// # Errors
/// [`Error::WeightsDoNotFit`] naming everything that does not fit.
///
/// # Source
/// `Module.load_state_dict`. Differs: values of another family, such as integers for a
/// floating-point parameter, are a mismatch and are not converted.
pub fn load_weights(
    module: &dyn Module,
    weights: &Weights,
    options: &LoadOptions<'_>,
) -> Result<LoadReport> {
    let targets = targets(module);
    let (mut report, copies) = compare(&targets, weights, options)?;
    if !report.mismatched.is_empty() || !(options.lenient || report.fits()) {
        return Err(Error::WeightsDoNotFit {
            path: weights.path().to_owned(),
            class: module.class_name(),
            report: Box::new(report),
        });
    }
    if let Some(first) = report.unwrapped.first() {
        tracing::warn!(
            "{} name(s) of `{}` are of a wrapped model and were found without the wrapper, first `{first}`",
            report.unwrapped.len(),
            weights.path().display()
        );
    }
    report.loaded = copies.len();
    tch::no_grad(|| {
        copies
            .iter()
            .try_for_each(|(slice, target)| copy(slice, target))
    })?;
    Ok(report)
}

/// A tensor of the module under one of its names.
struct Target<'m> {
    name: String,
    tensor: &'m Tensor,
}

/// Everything a checkpoint holds, a tied tensor under each of its names.
fn targets(module: &dyn Module) -> Vec<Target<'_>> {
    let parameters = nn::all_parameters(module).into_iter();
    let parameters = parameters.map(|(name, parameter)| Target {
        name,
        tensor: parameter.tensor(),
    });
    let buffers = nn::all_buffers(module)
        .into_iter()
        .filter(|(_, buffer)| buffer.is_persistent());
    parameters
        .chain(buffers.map(|(name, buffer)| Target {
            name,
            tensor: buffer.tensor(),
        }))
        .collect()
}

type Copy<'w, 'm> = (WeightTensor<'w>, &'m Tensor);

/// Pairs the file with the module, by name.
fn compare<'w, 'm>(
    targets: &[Target<'m>],
    weights: &'w Weights,
    options: &LoadOptions<'_>,
) -> Result<(LoadReport, Vec<Copy<'w, 'm>>)> {
    let by_name: HashMap<&str, &'m Tensor> = targets
        .iter()
        .map(|target| (target.name.as_str(), target.tensor))
        .collect();
    let mut report = LoadReport::default();
    let mut copies = Vec::with_capacity(weights.len());
    let mut taken = HashSet::new();
    let mut filled = HashSet::new();
    for slice in weights.tensors() {
        let Some(mut name) = options.name_for(slice.name()) else {
            report.ignored.push(slice.name().to_owned());
            continue;
        };
        if !by_name.contains_key(name.as_str())
            && let Some(plain) = without_wrappers(&name, |plain| by_name.contains_key(plain))
            && weights.find(&plain).is_none()
        {
            report.unwrapped.push(slice.name().to_owned());
            name = plain;
        }
        let Some(&target) = by_name.get(name.as_str()) else {
            report.unexpected.push(slice.name().to_owned());
            continue;
        };
        if !taken.insert(name.clone()) {
            // Two names of the file were renamed to one.
            report.unexpected.push(slice.name().to_owned());
            continue;
        }
        filled.insert(storage::identity(target));
        match mismatch(&name, &slice, target)? {
            Some(mismatch) => report.mismatched.push(mismatch),
            None => copies.push((slice, target)),
        }
    }
    add_aliases(&by_name, weights, options, &mut filled, &mut copies)?;
    for target in targets {
        // Every name of a tied tensor counts as there when one is; a missing one is told once.
        if !filled.insert(storage::identity(target.tensor)) {
            continue;
        }
        let list = if options.is_optional(&target.name) {
            &mut report.newly_initialized
        } else {
            &mut report.missing
        };
        list.push(target.name.clone());
    }
    Ok((report, copies))
}

/// Adds what the file stores under another name only: tensors that were tied where they were saved,
/// and are not in this module.
fn add_aliases<'w, 'm>(
    by_name: &HashMap<&str, &'m Tensor>,
    weights: &'w Weights,
    options: &LoadOptions<'_>,
    filled: &mut HashSet<usize>,
    copies: &mut Vec<Copy<'w, 'm>>,
) -> Result<()> {
    for (alias, _) in weights.aliases() {
        let name = options.name_for(alias);
        let target = name
            .as_deref()
            .and_then(|name| Some((name, *by_name.get(name)?)));
        let (Some((name, target)), Some(slice)) = (target, weights.find(alias)) else {
            continue;
        };
        if !filled.contains(&storage::identity(target)) && mismatch(name, &slice, target)?.is_none()
        {
            filled.insert(storage::identity(target));
            copies.push((slice, target));
        }
    }
    Ok(())
}

fn mismatch(name: &str, slice: &WeightTensor<'_>, target: &Tensor) -> Result<Option<Mismatch>> {
    let shape = target
        .size()
        .into_iter()
        .map(|length| usize::try_from(length).unwrap_or(0))
        .collect();
    let expected = TensorType {
        dtype: dtype_of(target.f_kind()?),
        shape,
    };
    let found = TensorType {
        dtype: Some(slice.dtype()),
        shape: slice.shape().to_vec(),
    };
    let castable = expected
        .dtype
        .is_some_and(|expected| can_become(slice.dtype(), expected));
    if castable && expected.shape == found.shape {
        return Ok(None);
    }
    Ok(Some(Mismatch {
        name: name.to_owned(),
        expected,
        found,
    }))
}

fn copy(slice: &WeightTensor<'_>, target: &Tensor) -> Result<()> {
    if slice.byte_len() == 0 {
        return Ok(());
    }
    target.shallow_clone().f_copy_(&as_tensor(slice)?)?;
    Ok(())
}

/// The bytes of a file as a tensor, where they lie if their address allows it.
fn as_tensor(slice: &WeightTensor<'_>) -> Result<Tensor> {
    let kind = kind_of(slice.dtype()).ok_or_else(|| unknown_to_libtorch(slice.dtype()))?;
    let lengths = slice.shape().iter().map(|&length| i64::try_from(length));
    let shape = lengths
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Error::Argument {
            operation: "load_weights",
            expected: "dimensions within a signed 64-bit number".to_owned(),
            found: format!("the shape {:?} of `{}`", slice.shape(), slice.name()),
        })?;
    let bytes = slice.to_owner()?;
    if bytes.is_aligned_to(kind.elt_size_in_bytes()) {
        return Ok(storage::from_bytes_owner(Arc::new(bytes), kind, &shape)?);
    }
    Ok(Tensor::f_from_data_size(&bytes, &shape, kind)?)
}

fn unknown_to_libtorch(dtype: Dtype) -> Error {
    Error::Argument {
        operation: "load_weights",
        expected: "a data type that libtorch has".to_owned(),
        found: format!("`{dtype}`"),
    }
}
