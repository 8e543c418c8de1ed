//! What can be read off a tree.

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::{Tree, leaves};
use crate::{Error, Result};

/// The number of rows of the first tensor.
///
/// # Errors
/// [`Error::Argument`] if there is no tensor, or the first one is a scalar.
///
/// # Source
/// `accelerate.utils.find_batch_size`.
pub fn find_batch_size(tree: &dyn Tree) -> Result<usize> {
    let found = match leaves(tree)?.first() {
        None => "a tree without tensors",
        Some(tensor) => match tensor.size().first() {
            Some(&rows) => return Ok(usize::try_from(rows).unwrap_or(0)),
            None => "a scalar first",
        },
    };
    Err(Error::Argument {
        operation: "find_batch_size",
        expected: "a tree whose first tensor has rows".to_owned(),
        found: found.to_owned(),
    })
}

/// The device of the first tensor; none where there is no tensor.
///
/// # Errors
/// None of its own; the signature follows [`Tree::visit`].
///
/// # Source
/// `accelerate.utils.find_device`.
pub fn find_device(tree: &dyn Tree) -> Result<Option<Device>> {
    Ok(leaves(tree)?.first().map(Tensor::device))
}

/// The numbers of a tensor as nested lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Numbers {
    /// Of a tensor of flags.
    Bool(bool),
    /// Of a tensor of integers.
    Int(i64),
    /// Of a tensor of floating point, widened to 64 bits.
    Float(f64),
    /// One for each row.
    List(Vec<Numbers>),
}

/// The numbers of every tensor as nested lists, in the order of the walk.
///
/// # Errors
/// [`Error::Argument`] for complex and other kinds that are no plain numbers.
///
/// # Source
/// `accelerate.utils.listify`. Differs: the lists come without the containers around
/// them, as a type of tensors cannot hold them.
pub fn listify(tree: &dyn Tree) -> Result<Vec<Numbers>> {
    leaves(tree)?.iter().map(numbers).collect()
}

fn numbers(tensor: &Tensor) -> Result<Numbers> {
    let flat = tensor
        .f_detach()?
        .f_to_device(Device::Cpu)?
        .f_reshape([-1])?;
    let flat: Vec<Numbers> = match tensor.f_kind()? {
        Kind::Bool => values::<bool>(&flat)?.map(Numbers::Bool).collect(),
        Kind::Uint8 | Kind::Int8 | Kind::Int16 | Kind::Int | Kind::Int64 => {
            let wide = flat.f_to_kind(Kind::Int64)?;
            values::<i64>(&wide)?.map(Numbers::Int).collect()
        }
        Kind::Half | Kind::BFloat16 | Kind::Float | Kind::Double => {
            let wide = flat.f_to_kind(Kind::Double)?;
            values::<f64>(&wide)?.map(Numbers::Float).collect()
        }
        other => {
            return Err(Error::Argument {
                operation: "listify",
                expected: "tensors of flags, integers or floating point".to_owned(),
                found: format!("{other:?}"),
            });
        }
    };
    let mut items = flat.into_iter();
    Ok(nest(&tensor.size(), &mut items))
}

fn values<T>(flat: &Tensor) -> Result<impl Iterator<Item = T> + use<T>>
where
    Vec<T>: for<'a> TryFrom<&'a Tensor, Error = tch::TchError>,
{
    Ok(Vec::<T>::try_from(flat)?.into_iter())
}

fn nest(shape: &[i64], items: &mut impl Iterator<Item = Numbers>) -> Numbers {
    match shape {
        [] => items.next().unwrap_or(Numbers::List(Vec::new())),
        [rows, inner @ ..] => Numbers::List((0..*rows).map(|_| nest(inner, items)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tensor_tells_the_batch_size_and_the_device() -> Result<()> {
        let tree = (7, vec![Tensor::from_slice(&[1, 2, 3])], Tensor::from(1));
        assert_eq!(find_batch_size(&tree)?, 3);
        assert_eq!(find_device(&tree)?, Some(Device::Cpu));
        assert_eq!(find_device(&"text")?, None);
        let none = find_batch_size(&Vec::<Tensor>::new()).unwrap_err();
        assert!(none.to_string().contains("without tensors"), "{none}");
        assert!(find_batch_size(&Tensor::from(1)).is_err());
        Ok(())
    }

    #[test]
    fn tensors_become_nested_lists() -> Result<()> {
        let floats = Tensor::from_slice(&[1.5f32, -2.0]).to_kind(Kind::BFloat16);
        let tree = (
            Tensor::from_slice(&[1, 2, 3, 4, 5, 6]).reshape([3, 2]),
            vec![floats, Tensor::from(true)],
            Tensor::zeros([2, 0], (Kind::Int64, Device::Cpu)),
        );
        let lists = serde_json::to_string(&listify(&tree)?).unwrap_or_default();
        assert_eq!(lists, "[[[1,2],[3,4],[5,6]],[1.5,-2.0],true,[[],[]]]");
        assert!(listify(&Tensor::zeros([1], (Kind::ComplexFloat, Device::Cpu))).is_err());
        Ok(())
    }
}
