//! Putting flat names back into nested dicts and lists.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;

use super::DistributedCheckpoint;
use super::description::{PathPart, ShardedTensor};
use crate::error::{DistributedFault, Result};
use crate::tensor::{Storage, StoredTensor};
use crate::torch::TorchWriter;
use crate::value::{Dict, Value};

impl DistributedCheckpoint {
    /// Everything in it as one nested value, tensors read into memory: what `torch.save` would have
    /// been given. Names without a known path stay flat.
    ///
    /// # Errors
    /// As [`read_box`](Self::read_box) and [`value`](Self::value).
    pub fn to_value(&self) -> Result<Value> {
        self.nested(|tensor| {
            let mut bytes = Vec::new();
            self.read_into(&tensor.name, &mut bytes)?;
            Ok(Arc::new(Storage::new(bytes)))
        })
    }

    /// Writes everything in it as one file of `torch.save`, nested as it was; where all of it has
    /// one first key, what is below that key. Memory is needed for a few rows of one tensor.
    ///
    /// # Errors
    /// As [`pieces`](Self::pieces), [`value`](Self::value) and [`TorchWriter`].
    ///
    /// # Source
    /// `merge_fsdp_weights` with `safe_serialization=False`.
    pub fn write_torch_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut names: HashMap<*const Storage, &str> = HashMap::new();
        let value = self.nested(|tensor| {
            let bytes = tensor.dtype.bits_of(&tensor.shape).unwrap_or(0) / 8;
            let storage = Arc::new(Storage::pending(bytes));
            names.insert(Arc::as_ptr(&storage), &tensor.name);
            Ok(storage)
        })?;
        let value = match self.only_key() {
            Some(key) => value.get(key).cloned().unwrap_or(value),
            None => value,
        };
        let mut writer = TorchWriter::create(path, &value)?;
        while let Some(storage) = writer.pending_storage() {
            let name = names
                .get(&Arc::as_ptr(storage))
                .copied()
                .unwrap_or_default();
            let begin = writer.position();
            let written = self
                .pieces(name)
                .and_then(|pieces| writer.write_pieces(pieces));
            written.map_err(|error| error.of_tensor(name, begin))?;
        }
        writer.finish()
    }

    fn nested<'c>(
        &'c self,
        mut storage: impl FnMut(&'c ShardedTensor) -> Result<Arc<Storage>>,
    ) -> Result<Value> {
        let mut root = Branch::default();
        for tensor in self.tensors() {
            let storage = storage(tensor)?;
            let value = StoredTensor::in_rows(tensor.dtype, tensor.shape.clone(), storage);
            self.plant(&mut root, &tensor.name, value.into())?;
        }
        for name in self.value_names() {
            self.plant(&mut root, name, self.value(name)?)?;
        }
        Ok(root.into_value())
    }

    fn plant(&self, root: &mut Branch, name: &str, value: Value) -> Result<()> {
        let flat = [PathPart::Key(name.to_owned())];
        let path = self
            .path_of(name)
            .filter(|path| !path.is_empty())
            .unwrap_or(&flat);
        root.plant(path, value).map_err(|()| {
            self.refused(DistributedFault::Nesting {
                name: name.to_owned(),
            })
        })
    }
}

/// A dict or list that is put together again.
#[derive(Debug, Default)]
struct Branch {
    keys: IndexMap<String, Twig>,
    places: BTreeMap<usize, Twig>,
}

#[derive(Debug)]
enum Twig {
    Leaf(Value),
    Branch(Branch),
}

impl Branch {
    fn plant(&mut self, path: &[PathPart], value: Value) -> Result<(), ()> {
        let (first, rest) = path.split_first().ok_or(())?;
        let twig = self.twig(first);
        match (twig, rest) {
            (Some(Twig::Branch(branch)), [_, ..]) => branch.plant(rest, value),
            (Some(_), _) => Err(()),
            (None, []) => {
                self.add(first, Twig::Leaf(value));
                Ok(())
            }
            (None, _) => {
                let mut branch = Self::default();
                branch.plant(rest, value)?;
                self.add(first, Twig::Branch(branch));
                Ok(())
            }
        }
    }

    fn twig(&mut self, part: &PathPart) -> Option<&mut Twig> {
        match part {
            PathPart::Key(key) => self.keys.get_mut(key),
            PathPart::Index(index) => self.places.get_mut(index),
        }
    }

    fn add(&mut self, part: &PathPart, twig: Twig) {
        match part {
            PathPart::Key(key) => {
                self.keys.insert(key.clone(), twig);
            }
            PathPart::Index(index) => {
                self.places.insert(*index, twig);
            }
        }
    }

    fn into_value(self) -> Value {
        let value = |twig| match twig {
            Twig::Leaf(value) => value,
            Twig::Branch(branch) => branch.into_value(),
        };
        if self.keys.is_empty() && !self.places.is_empty() {
            return Value::List(self.places.into_values().map(value).collect());
        }
        // Optimizer states have numbers as keys.
        let numbers = self
            .places
            .into_iter()
            .map(|(index, twig)| (Value::from(index as u64), value(twig)));
        let keys = self
            .keys
            .into_iter()
            .map(|(key, twig)| (Value::from(key), value(twig)));
        Value::Dict(numbers.chain(keys).collect::<Dict>())
    }
}
