//! From a file into a module.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use accelerate_formats::{Dtype, StoredTensor, WeightTensor, Weights};
use accelerate_torch::storage;
use tch::{Kind, Tensor};

use super::compare::{Incoming, compare};
use super::dtype::kind_of;
use super::report::{LoadReport, TensorType};
use crate::nn::{Module, require_state};
use crate::{Error, Result};

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
    exact_names: bool,
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

    /// Takes names as they are, also where a wrapper such as `module.` or `_orig_mod.` seems to
    /// have added to them.
    #[must_use]
    pub fn with_exact_names(mut self) -> Self {
        self.exact_names = true;
        self
    }

    /// Whether names are taken as they are.
    pub(super) fn has_exact_names(&self) -> bool {
        self.exact_names
    }

    /// Whether what was found is allowed.
    pub(super) fn accepts(&self, report: &LoadReport) -> bool {
        report.mismatched.is_empty() && (self.lenient || report.fits())
    }

    pub(super) fn is_optional(&self, name: &str) -> bool {
        self.optional.iter().any(|prefix| {
            name.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    pub(super) fn name_for(&self, name: &str) -> Option<String> {
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
            .field("exact_names", &self.exact_names)
            .finish_non_exhaustive()
    }
}

/// Copies weights into the parameters and persistent buffers of a module.
///
/// Values are cast to the module's type and go to its device; they are read from the mapped file
/// without another copy in between, unless a torch file holds a view that is not in row-major
/// order. A tied parameter may stand in the file under any of its names. Everything is compared
/// before the first copy, so a module is never half loaded for want of a name.
///
/// What a wrapper around the model added to its names is taken out of them, with a warning: a
/// leading `module.` of data parallelism, and `_orig_mod.` of a compiled module, among others.
///
/// # Errors
/// [`Error::WeightsDoNotFit`] naming everything that does not fit. [`Error::AmbiguousNames`] if a
/// part of the names may belong to the model or to a wrapper. [`Error::OnMeta`] if the module has
/// no memory to copy to.
///
/// # Source
/// `Module.load_state_dict`. Differs: values of another family, such as integers for a
/// floating-point parameter, are a mismatch and are not converted; wrappers' prefixes are known; a
/// module on the meta device is an error, where PyTorch does nothing.
pub fn load_weights(
    module: &dyn Module,
    weights: &Weights,
    options: &LoadOptions<'_>,
) -> Result<LoadReport> {
    require_state(module, "load_weights")?;
    let (report, paired) = pair_weights(module, weights, options)?;
    tch::no_grad(|| paired.iter().try_for_each(Paired::copy))?;
    Ok(report)
}

/// A tensor of a file under one of its names.
pub(super) struct Slice<'w> {
    name: &'w str,
    tensor: WeightTensor<'w>,
    spare: bool,
}

/// Every tensor under its name, and under those of tensors that were tied to it when it was saved.
pub(super) fn slices(weights: &Weights) -> Vec<Slice<'_>> {
    let own = weights.tensors().map(|tensor| Slice {
        name: tensor.name(),
        tensor,
        spare: false,
    });
    let aliases = weights.aliases().filter_map(|(alias, _)| {
        Some(Slice {
            name: alias,
            tensor: weights.find(alias)?,
            spare: true,
        })
    });
    own.chain(aliases).collect()
}

impl Incoming for Slice<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn is_spare(&self) -> bool {
        self.spare
    }

    fn tensor_type(&self) -> Result<TensorType> {
        Ok(TensorType {
            dtype: Some(self.tensor.dtype()),
            shape: self.tensor.shape().to_vec(),
        })
    }

    fn kind(&self) -> Result<Option<Kind>> {
        Ok(kind_of(self.tensor.dtype()))
    }

    fn copy_to(&self, target: &Tensor) -> Result<()> {
        copy(self.tensor.name(), self.tensor.stored(), target)
    }
}

impl Slice<'_> {
    /// Copies some of the values, counted in row-major order; of a mapped file no others are read.
    pub(super) fn copy_range_to(&self, range: &Range<usize>, target: &Tensor) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (start, count) = (range.start as i64, range.len() as i64);
        let own = stored_values(self.tensor.name(), self.tensor.stored())?
            .f_reshape([-1])?
            .f_narrow(0, start, count)?;
        target.shallow_clone().f_copy_(&own)?;
        Ok(())
    }
}

fn copy(name: &str, stored: &StoredTensor, target: &Tensor) -> Result<()> {
    if stored.byte_len() == 0 {
        return Ok(());
    }
    let values = stored_values(name, stored)?;
    target.shallow_clone().f_copy_(&values)?;
    Ok(())
}

/// The bytes of a file as a tensor to be read, where they lie if their address allows it.
pub(crate) fn stored_values(name: &str, stored: &StoredTensor) -> Result<Tensor> {
    let (kind, shape) = stored_type(name, stored)?;
    let bytes = stored.to_owner()?;
    if bytes.is_aligned_to(kind.elt_size_in_bytes()) {
        return Ok(storage::from_bytes_owner(Arc::new(bytes), kind, &shape)?);
    }
    Ok(Tensor::f_from_data_size(&bytes, &shape, kind)?)
}

/// libtorch's name for the type of a tensor in a file, and its shape.
pub(crate) fn stored_type(name: &str, stored: &StoredTensor) -> Result<(Kind, Vec<i64>)> {
    let kind = kind_of(stored.dtype()).ok_or_else(|| unknown_to_libtorch(stored.dtype()))?;
    let lengths = stored.shape().iter().map(|&length| i64::try_from(length));
    let shape = lengths
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Error::Argument {
            operation: "load_weights",
            expected: "dimensions within a signed 64-bit number".to_owned(),
            found: format!("the shape {:?} of `{name}`", stored.shape()),
        })?;
    Ok((kind, shape))
}

/// A tensor of a file, and the one of the module that is to have its values.
pub(crate) struct Paired {
    /// The name in the file.
    pub(crate) name: String,
    pub(crate) stored: StoredTensor,
    /// A handle on the module's tensor.
    pub(crate) target: Tensor,
}

impl Paired {
    fn copy(&self) -> Result<()> {
        copy(&self.name, &self.stored, &self.target)
    }
}

/// Pairs the tensors of files with those of a module, which may be on the meta device, under the
/// rules of [`load_weights`].
///
/// # Errors
/// As [`load_weights`], apart from memory.
pub(crate) fn pair_weights(
    module: &dyn Module,
    weights: &Weights,
    options: &LoadOptions<'_>,
) -> Result<(LoadReport, Vec<Paired>)> {
    let slices = slices(weights);
    let (report, copies) = compare(module, &slices, options)?;
    if !options.accepts(&report) {
        return Err(Error::WeightsDoNotFit {
            path: weights.path().to_owned(),
            class: module.class_name(),
            report: Box::new(report),
        });
    }
    let paired = copies.into_iter().map(|(slice, target)| Paired {
        name: slice.name.to_owned(),
        stored: slice.tensor.stored().clone(),
        target: target.shallow_clone(),
    });
    let paired = paired.collect();
    Ok((report, paired))
}

fn unknown_to_libtorch(dtype: Dtype) -> Error {
    Error::Argument {
        operation: "load_weights",
        expected: "a data type that libtorch has".to_owned(),
        found: format!("`{dtype}`"),
    }
}
