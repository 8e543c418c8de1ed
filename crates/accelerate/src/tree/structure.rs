//! A tree's shapes without its numbers.

use std::fmt;

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::{Tree, TreePath};
use crate::{Error, Result};

/// One tensor of a tree, without its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorSpec {
    /// The way to it, as [`TreePath`] writes it.
    pub path: String,
    /// Its sizes.
    pub shape: Vec<i64>,
    /// What its numbers are.
    #[serde(with = "kind_by_name")]
    pub kind: Kind,
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{:?} {:?}", self.shape, self.kind)
    }
}

/// The tensors of a tree in the order of the walk, without their numbers.
///
/// Can be sent as an object to ranks that then make room with [`initialize_tensors`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TreeStructure {
    /// One for each tensor.
    pub tensors: Vec<TensorSpec>,
}

/// The shapes and kinds of a tree.
///
/// # Errors
/// If a kind is not known.
///
/// # Source
/// `accelerate.utils.get_data_structure`. Differs: a flat list with paths.
pub fn data_structure(tree: &dyn Tree) -> Result<TreeStructure> {
    let mut tensors = Vec::new();
    tree.visit_paths(&TreePath::root(), &mut |path, tensor| {
        tensors.push(TensorSpec {
            path: path.to_string(),
            shape: tensor.size(),
            kind: tensor.f_kind()?,
        });
        Ok(())
    })?;
    Ok(TreeStructure { tensors })
}

/// Puts empty tensors of the given shapes and kinds, on the CPU, in place of a tree's own.
///
/// # Errors
/// [`Error::Argument`] if the tree has other places for tensors than the structure.
///
/// # Source
/// `accelerate.utils.initialize_tensors`. Differs: it fills a tree that is there.
pub fn initialize_tensors<T: Tree>(mut tree: T, structure: &TreeStructure) -> Result<T> {
    let unfit = |found: String| Error::Argument {
        operation: "initialize_tensors",
        expected: format!("a tree with the {} tensors given", structure.tensors.len()),
        found,
    };
    let mut specs = structure.tensors.iter();
    tree.visit_paths_mut(&TreePath::root(), &mut |path, leaf| {
        let path = path.to_string();
        match specs.next() {
            Some(spec) if spec.path == path => {
                *leaf = Tensor::f_empty(&spec.shape, (spec.kind, Device::Cpu))?;
                Ok(())
            }
            _ => Err(unfit(format!("one at `{path}`"))),
        }
    })?;
    match specs.next() {
        Some(spec) => Err(unfit(format!("none at `{}`", spec.path))),
        None => Ok(tree),
    }
}

/// Kinds travel by the name that Rust knows them by.
mod kind_by_name {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use tch::Kind;

    use crate::tree::KINDS;

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde asks for"
    )]
    pub(super) fn serialize<S: Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{kind:?}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
        let name = String::deserialize(from)?;
        KINDS
            .into_iter()
            .find(|kind| format!("{kind:?}") == name)
            .ok_or_else(|| D::Error::custom(format!("no kind of tensor is named `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_structure_can_be_sent_and_filled_with_room() -> Result<()> {
        let own = BTreeMap::from([
            ("a", vec![Tensor::zeros([2, 3], (Kind::Half, Device::Cpu))]),
            ("b", vec![Tensor::from(true)]),
        ]);
        let structure = data_structure(&own)?;
        let sent = serde_json::to_string(&structure).unwrap_or_default();
        let arrived: TreeStructure = serde_json::from_str(&sent).unwrap_or_default();
        assert_eq!(arrived, structure);
        assert_eq!(arrived.tensors[0].to_string(), "[a][0]: [2, 3] Half");
        let blank = || vec![Tensor::from(0)];
        let room = initialize_tensors(BTreeMap::from([("a", blank()), ("b", blank())]), &arrived)?;
        assert_eq!(data_structure(&room)?, structure);
        let other = initialize_tensors(BTreeMap::from([("a", blank())]), &arrived);
        let error = other.unwrap_err().to_string();
        assert!(error.contains("none at `[b][0]`"), "{error}");
        Ok(())
    }
}
