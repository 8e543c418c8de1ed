//! Weights that are kept outside of a model, by name.

use std::path::Path;

use accelerate_formats::{OffloadFolder, StoredTensor};
use indexmap::IndexMap;
use tch::Tensor;

use super::source::Source;
use crate::Result;
use crate::checkpoint::{StateDict, kind_of};
use crate::nn::{Member, Module};

/// Weights that are kept outside of a model: in CPU memory, in a folder, or in the files of a
/// checkpoint.
///
/// # Source
/// `OffloadedWeightsLoader`. Differs: a weight of a file is mapped, so that asking for it again reads
/// nothing again.
#[derive(Debug, Default)]
pub struct OffloadedWeights {
    entries: IndexMap<String, Source>,
}

impl OffloadedWeights {
    /// No weights yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The weights of a folder that has an index.
    ///
    /// # Errors
    /// If there is no index, or a weight of it cannot be read.
    pub fn of_folder(folder: impl AsRef<Path>) -> Result<Self> {
        Self::of_folder_where(folder, |_| true)
    }

    /// Those weights of a folder that are wanted; others are not looked at, for the index may have
    /// some that are gone.
    pub(super) fn of_folder_where(
        folder: impl AsRef<Path>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let folder = OffloadFolder::open(folder)?;
        let mut weights = Self::new();
        for (name, _) in folder.entries().filter(|(name, _)| is_wanted(name)) {
            let found = folder.get(name)?;
            // The type of the module decides what it becomes, as for every other weight.
            weights.insert_file(name, found.tensor);
        }
        Ok(weights)
    }

    /// The weights of a state dict, which are shared with it.
    #[must_use]
    pub fn of_state_dict(state: &StateDict) -> Self {
        let entries = state.iter();
        let entries = entries.map(|(name, values)| {
            let source = Source::Memory(values.shallow_clone());
            (name.clone(), source)
        });
        Self {
            entries: entries.collect(),
        }
    }

    pub(super) fn insert(&mut self, name: &str, source: Source) {
        self.entries.insert(name.to_owned(), source);
    }

    pub(super) fn insert_file(&mut self, name: &str, stored: StoredTensor) {
        self.entries.insert(name.to_owned(), Source::File(stored));
    }

    /// The names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The values of this name, as they are kept. Not to be written into: they may be those of a file.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>> {
        let found = self.entries.get(name);
        found.map(|source| source.values(name)).transpose()
    }

    pub(super) fn source(&self, name: &str) -> Option<&Source> {
        self.entries.get(name)
    }

    /// Adds the weights of another, which count where both have a name.
    pub(super) fn add(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// Forgets the weight of this name.
    pub(super) fn forget(&mut self, name: &str) {
        self.entries.shift_remove(name);
    }

    /// Forgets the weights of other names.
    pub(super) fn keep_only(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|name, _| keep(name));
    }
}

/// Whether a weight in a file can be one of a tensor: its shape, and whether both types are known.
pub(super) fn fits(source: &Source, name: &str, tensor: &Tensor) -> bool {
    let known = match source {
        Source::Memory(_) => true,
        Source::File(stored) => kind_of(stored.dtype()).is_some(),
    };
    known && source.shape(name).is_ok_and(|shape| shape == tensor.size())
}

/// The names below a module that are those of `prefix`.
pub(super) fn joined(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        _ => format!("{prefix}.{name}"),
    }
}

/// The direct parameters and buffers of a module with their dotted names, given that of the module.
pub(super) fn direct_tensors(name: &str, module: &dyn Module) -> Vec<Direct> {
    let mut found = Vec::new();
    module.members(&mut |member, value| {
        let name = joined(name, member);
        match value {
            Member::Parameter(parameter) => found.push(Direct {
                name,
                tensor: parameter.tensor().shallow_clone(),
                role: Role::Parameter,
            }),
            Member::Buffer(buffer) => found.push(Direct {
                name,
                tensor: buffer.tensor().shallow_clone(),
                role: match buffer.is_persistent() {
                    true => Role::Buffer,
                    false => Role::NonPersistent,
                },
            }),
            Member::Module(_) => {}
        }
    });
    found
}

/// A tensor that a module holds itself: a handle on it, and what it is.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) name: String,
    pub(super) tensor: Tensor,
    pub(super) role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Parameter,
    Buffer,
    NonPersistent,
}

impl Role {
    pub(super) fn is_parameter(self) -> bool {
        self == Self::Parameter
    }

    /// Whether such a tensor waits elsewhere where others do.
    pub(super) fn can_wait(self, offload_buffers: bool) -> bool {
        match self {
            Self::Parameter => true,
            Self::Buffer => offload_buffers,
            Self::NonPersistent => false,
        }
    }
}
