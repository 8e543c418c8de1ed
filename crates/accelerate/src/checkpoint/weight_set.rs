//! Tensors by name as files hold them: each once, however many names it has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use accelerate_formats::safetensors::TensorHeader;
use accelerate_formats::{AtomicFile, Dict, Metadata, SafetensorsWriter, TorchWriter};
use accelerate_torch::storage;
use tch::{Device, Kind, Tensor};

use super::dtype::dtype_of;
use super::state_dict::StateDict;
use super::torch_state::TorchState;
use crate::{Error, Result};

/// The tensors of a state dict, those that are one under all of their names.
///
/// Two tensors are one where they look at the same memory in the same way. Views of one memory
/// that differ are written each by itself.
///
/// # Source
/// `clean_state_dict_for_safetensors`. Differs: there the second of two different views of one
/// memory is lost.
#[derive(Debug)]
pub(super) struct WeightSet {
    /// Each tensor under the first of its names.
    tensors: StateDict,
    /// Every other name, with the place of its tensor.
    others: Vec<(String, usize)>,
}

/// What tells whether two tensors are one.
#[derive(PartialEq, Eq, Hash)]
struct Look {
    storage: usize,
    address: usize,
    kind: Kind,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Look {
    fn of(tensor: &Tensor) -> Result<Self> {
        Ok(Self {
            storage: storage::storage_identity(tensor)?,
            address: tensor.data_ptr().addr(),
            kind: tensor.f_kind()?,
            shape: tensor.size(),
            strides: tensor.stride(),
        })
    }
}

impl WeightSet {
    pub(super) fn new(state: StateDict) -> Result<Self> {
        let (mut tensors, mut others) = (StateDict::with_capacity(state.len()), Vec::new());
        let mut places = HashMap::new();
        for (name, tensor) in state {
            match places.entry(Look::of(&tensor)?) {
                Entry::Occupied(first) => others.push((name, *first.get())),
                Entry::Vacant(new) => {
                    new.insert(tensors.len());
                    tensors.insert(name, tensor);
                }
            }
        }
        Ok(Self { tensors, others })
    }

    /// The tensors, to be replaced by others of the same shapes and kinds.
    pub(super) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.tensors.values_mut()
    }

    /// What files say of each tensor.
    ///
    /// # Errors
    /// [`Error::Argument`] for a type that files cannot hold.
    pub(super) fn headers(&self) -> Result<Vec<TensorHeader>> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, tensor)| header(name, tensor)).collect()
    }

    /// The other names of tensors, each with the first.
    pub(super) fn aliases(&self) -> Vec<(String, String)> {
        let others = self.others.iter().filter_map(|(name, place)| {
            let (first, _) = self.tensors.get_index(*place)?;
            Some((name.clone(), first.clone()))
        });
        others.collect()
    }

    /// Hands the tensor of this name to `read`, in row-major order in CPU memory.
    pub(super) fn read<R>(&self, name: &str, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let tensor = self.tensors.get(name).ok_or_else(|| Error::Argument {
            operation: "save_weights",
            expected: "the name of a tensor that is saved".to_owned(),
            found: format!("`{name}`"),
        })?;
        with_plain_bytes(tensor, read)
    }

    /// Writes one safetensors file, with the other names of tied tensors in its metadata.
    pub(super) fn write_safetensors(&self, file: AtomicFile, metadata: &Metadata) -> Result<()> {
        let own = metadata
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let metadata: Metadata = self.aliases().into_iter().chain(own).collect();
        let metadata = metadata.with("format", "pt");
        let mut writer = SafetensorsWriter::into_file(file, self.headers()?, &metadata)?;
        while let Some(name) = writer.pending().map(|header| header.name.clone()) {
            self.read(&name, |bytes| writer.write(&name, bytes))??;
        }
        Ok(writer.finish()?)
    }

    /// Writes one file of `torch.save` with every name, those of one tensor sharing its bytes.
    pub(super) fn write_torch(&self, file: AtomicFile) -> Result<()> {
        let mut torch = TorchState::default();
        let mut values = Vec::with_capacity(self.tensors.len());
        for tensor in self.tensors.values() {
            values.push(torch.tensor(tensor)?);
        }
        let mut dict = Dict::new();
        for (name, value) in self.tensors.keys().zip(&values) {
            dict.push(name.as_str(), value.clone());
        }
        for (name, place) in &self.others {
            if let Some(value) = values.get(*place) {
                dict.push(name.as_str(), value.clone());
            }
        }
        torch.write(TorchWriter::into_file(file, &dict.into())?)
    }
}

fn header(name: &str, tensor: &Tensor) -> Result<TensorHeader> {
    let kind = tensor.f_kind()?;
    let dtype = dtype_of(kind).ok_or_else(|| unwritable(kind, name))?;
    let shape = tensor
        .size()
        .into_iter()
        .map(|length| usize::try_from(length).unwrap_or(0))
        .collect();
    Ok(TensorHeader {
        name: name.to_owned(),
        dtype,
        shape,
    })
}

fn unwritable(kind: Kind, name: &str) -> Error {
    Error::Argument {
        operation: "save_weights",
        expected: "data types that safetensors files can hold".to_owned(),
        found: format!("`{kind:?}` in `{name}`"),
    }
}

/// Calls `read` with the values in row-major order in CPU memory: those of the tensor itself where
/// it lies so, else a copy.
pub(crate) fn with_plain_bytes<R>(tensor: &Tensor, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let plain = tch::no_grad(|| -> Result<Tensor> {
        Ok(tensor
            .f_detach()?
            .f_to_device(Device::Cpu)?
            .f_contiguous()?)
    })?;
    Ok(storage::with_bytes(&plain, read)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tensors: &[(&str, Tensor)]) -> WeightSet {
        let named = tensors
            .iter()
            .map(|(name, tensor)| ((*name).to_owned(), tensor.shallow_clone()));
        WeightSet::new(named.collect()).unwrap()
    }

    #[test]
    fn one_tensor_is_stored_under_its_first_name() {
        let memory = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]);
        let square = memory.view([2, 2]);
        let set = set(&[
            ("a", square.shallow_clone()),
            ("transposed", square.tr()),
            ("tied", square.detach()),
            ("half", memory.narrow(0, 0, 2)),
            ("tied_too", square.shallow_clone()),
        ]);
        let headers = set.headers().unwrap();
        let names: Vec<&str> = headers.iter().map(|header| header.name.as_str()).collect();
        // Other views of the same memory are tensors of their own.
        assert_eq!(names, ["a", "transposed", "half"]);
        let alias = |name: &str| (name.to_owned(), "a".to_owned());
        assert_eq!(set.aliases(), [alias("tied"), alias("tied_too")]);
    }

    #[test]
    fn tensors_without_elements_are_never_one() {
        let empty = || Tensor::zeros([0, 3], (Kind::Float, Device::Cpu));
        let set = set(&[("a", empty()), ("b", empty())]);
        assert_eq!(set.headers().unwrap().len(), 2);
    }
}
