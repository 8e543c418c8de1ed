//! How many bytes each module and tensor takes.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::{ElementType, MemorySize, ModuleShape, TensorShape};

/// The sizes of all tensors and modules of a model by their dotted names; `""` is the whole model.
///
/// Tied tensors count once, under the first of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleSizes {
    sizes: IndexMap<String, MemorySize>,
}

impl ModuleSizes {
    /// The size of a module or tensor. Other names, and all but the first one of a tied tensor, take
    /// nothing.
    pub fn get(&self, name: &str) -> MemorySize {
        self.sizes.get(name).copied().unwrap_or_default()
    }

    /// The size of the model.
    pub fn total(&self) -> MemorySize {
        self.get("")
    }

    /// Names and sizes in the order of the tensors, parameters before buffers, each module at the
    /// first tensor below it.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, MemorySize)> {
        let sizes = self.sizes.iter();
        sizes.map(|(name, size)| (name.as_str(), *size))
    }

    /// Adds a tensor to itself and everything above it.
    fn add(&mut self, tensor: &str, size: MemorySize) {
        let ends = tensor.match_indices('.').map(|(dot, _)| dot);
        for end in [0].into_iter().chain(ends).chain([tensor.len()]) {
            let name = tensor.get(..end).unwrap_or(tensor);
            match self.sizes.get_mut(name) {
                Some(sum) => *sum += size,
                None => {
                    self.sizes.insert(name.to_owned(), size);
                }
            }
        }
    }
}

/// Computes the size of every module and tensor of a model as it is loaded.
///
/// A tensor in `special_dtypes` is loaded in the type named there. Any other one takes `dtype` if
/// that is given, smaller than its own type, and its own type is not one of whole numbers.
///
/// # Source
/// `compute_module_sizes`.
pub fn compute_module_sizes(
    model: &ModuleShape,
    dtype: Option<ElementType>,
    special_dtypes: &IndexMap<String, ElementType>,
) -> ModuleSizes {
    let mut named = model.named_parameters();
    named.extend(model.named_buffers());
    sizes_of(named, dtype, special_dtypes)
}

/// The bytes of all buffers, whether they belong to the state of the model or not.
///
/// # Source
/// `compute_module_total_buffer_size`.
pub fn compute_module_total_buffer_size(
    model: &ModuleShape,
    dtype: Option<ElementType>,
    special_dtypes: &IndexMap<String, ElementType>,
) -> MemorySize {
    buffer_sizes(model, dtype, special_dtypes).total()
}

/// The sizes of the buffers alone.
pub(super) fn buffer_sizes(
    model: &ModuleShape,
    dtype: Option<ElementType>,
    special_dtypes: &IndexMap<String, ElementType>,
) -> ModuleSizes {
    sizes_of(model.named_buffers(), dtype, special_dtypes)
}

fn sizes_of(
    named: Vec<(String, &TensorShape)>,
    dtype: Option<ElementType>,
    special_dtypes: &IndexMap<String, ElementType>,
) -> ModuleSizes {
    let mut sizes = ModuleSizes::default();
    let mut seen = HashSet::new();
    for (name, tensor) in named {
        if seen.insert(tensor.identity) {
            let special = special_dtypes.get(&name).copied();
            let loaded = special.unwrap_or_else(|| loaded_as(tensor.dtype, dtype));
            sizes.add(&name, loaded.of(tensor.elements));
        }
    }
    sizes
}

/// The type, for its size, in which a tensor of type `own` is loaded.
fn loaded_as(own: ElementType, wanted: Option<ElementType>) -> ElementType {
    match wanted {
        Some(wanted) if !own.is_whole_number() && wanted.bits() < own.bits() => wanted,
        _ => own,
    }
}
