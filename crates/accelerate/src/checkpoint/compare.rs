//! Pairing tensors with those of a module, by name.

use std::collections::{HashMap, HashSet};

use accelerate_torch::storage;
use tch::{Kind, Tensor};

use super::dtype::{can_become, dtype_of};
use super::load::LoadOptions;
use super::report::{LoadReport, Mismatch, TensorType};
use super::wrappers::{Names, Reading, resolve};
use crate::nn::{self, Module};
use crate::{Error, Result};

/// A tensor that is to be copied into a module.
pub(super) trait Incoming {
    /// The name it comes under.
    fn name(&self) -> &str;

    /// Whether it is another name of something that comes in too: it is taken where the module
    /// lacks a value, and not missed elsewhere.
    fn is_spare(&self) -> bool {
        false
    }

    /// Its type and shape.
    fn tensor_type(&self) -> Result<TensorType>;

    /// libtorch's name for its type, where libtorch has the type.
    fn kind(&self) -> Result<Option<Kind>>;

    /// Copies the values.
    fn copy_to(&self, target: &Tensor) -> Result<()>;
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

/// A tensor and where it is to be copied.
pub(super) type Copy<'i, 'm, I> = (&'i I, &'m Tensor);

/// Copies everything, outside of autograd.
pub(super) fn copy_all<I: Incoming>(copies: &[Copy<'_, '_, I>]) -> Result<()> {
    tch::no_grad(|| {
        copies
            .iter()
            .try_for_each(|(incoming, target)| incoming.copy_to(target))
    })
}

/// Pairs what comes in with the module.
pub(super) fn compare<'i, 'm, I: Incoming>(
    module: &'m dyn Module,
    incoming: &'i [I],
    options: &LoadOptions<'_>,
) -> Result<(LoadReport, Vec<Copy<'i, 'm, I>>)> {
    let targets = targets(module);
    let by_name: HashMap<&str, &'m Tensor> = targets
        .iter()
        .map(|target| (target.name.as_str(), target.tensor))
        .collect();
    let names = resolve(
        incoming.iter().map(Incoming::name),
        &|name| by_name.contains_key(name),
        options,
    )
    .map_err(|doubt| Error::AmbiguousNames {
        class: module.class_name(),
        prefix: doubt.prefix,
        name: doubt.name,
        readings: doubt.readings,
    })?;
    let Names { readings, removed } = names;
    if !removed.is_empty() {
        tracing::warn!(
            prefixes = ?removed,
            class = module.class_name(),
            "the names of the weights have what a wrapper added to them; it is left out"
        );
    }
    let mut report = LoadReport {
        removed_wrappers: removed,
        ..LoadReport::default()
    };
    let mut copies = Vec::with_capacity(incoming.len());
    let mut taken = HashSet::new();
    let mut filled = HashSet::new();
    let mut spare = Vec::new();
    for (item, reading) in incoming.iter().zip(readings) {
        if item.is_spare() {
            spare.push((item, reading));
            continue;
        }
        let Reading::Name(name) = reading else {
            report.ignored.push(item.name().to_owned());
            continue;
        };
        let Some(&target) = by_name.get(name.as_str()) else {
            report.unexpected.push(item.name().to_owned());
            continue;
        };
        if !taken.insert(name.clone()) {
            // Two names were renamed to one.
            report.unexpected.push(item.name().to_owned());
            continue;
        }
        filled.insert(storage::identity(target));
        match mismatch(&name, item, target)? {
            Some(mismatch) => report.mismatched.push(mismatch),
            None => copies.push((item, target)),
        }
    }
    for (item, reading) in spare {
        if let Reading::Name(name) = reading
            && let Some(&target) = by_name.get(name.as_str())
            && !filled.contains(&storage::identity(target))
            && mismatch(&name, item, target)?.is_none()
        {
            filled.insert(storage::identity(target));
            copies.push((item, target));
        }
    }
    for target in &targets {
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
    report.loaded = copies.len();
    Ok((report, copies))
}

fn mismatch(name: &str, item: &impl Incoming, target: &Tensor) -> Result<Option<Mismatch>> {
    let expected = tensor_type(target)?;
    let found = item.tensor_type()?;
    let castable = match (found.dtype, expected.dtype) {
        (Some(found), Some(expected)) => can_become(found, expected),
        // Types that no file holds, such as complex numbers of double precision.
        _ => item.kind()? == Some(target.f_kind()?),
    };
    if castable && expected.shape == found.shape {
        return Ok(None);
    }
    Ok(Some(Mismatch {
        name: name.to_owned(),
        expected,
        found,
    }))
}

/// The type of a tensor in memory.
pub(super) fn tensor_type(tensor: &Tensor) -> Result<TensorType> {
    let shape = tensor
        .size()
        .into_iter()
        .map(|length| usize::try_from(length).unwrap_or(0))
        .collect();
    Ok(TensorType {
        dtype: dtype_of(tensor.f_kind()?),
        shape,
    })
}
