use std::collections::BTreeMap;

use tch::Tensor;

use super::collate::Collate;
use crate::tree::Tree;
use crate::{Error, Result};

/// The default collation: every part of a sample becomes a batch of that part.
///
/// Tensors are stacked, numbers and flags become tensors of their kind, text
/// stays a list; tuples, arrays, lists and maps are taken part by part. For
/// structs of your own see [`StackLeaves`](super::StackLeaves) and [`StackItem`].
///
/// # Source
/// `torch.utils.data.default_collate`. Differs: an `f32` stays 32 bits wide.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stack;

impl<Item: StackItem + Send> Collate<Item> for Stack {
    type Batch = Item::Stacked;

    /// # Errors
    /// [`Error::StackShape`] if tensors differ in shape, [`Error::StackLength`]
    /// if lists differ in length or maps in their keys.
    fn collate(&self, items: Vec<Item>) -> Result<Item::Stacked> {
        let mut leaf = 0;
        Item::stack(items, &mut leaf)
    }
}

/// A part of a sample that [`Stack`] can batch.
pub trait StackItem: Sized {
    /// The batch of this part.
    type Stacked: Tree + Send;

    /// Batches `items`. `leaf` counts the leaves stacked so far, for messages.
    ///
    /// # Errors
    /// As for [`Stack`].
    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Self::Stacked>;
}

impl StackItem for Tensor {
    type Stacked = Tensor;

    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Tensor> {
        let shape = items.first().map(Tensor::size).unwrap_or_default();
        for (item, tensor) in items.iter().enumerate() {
            let found = tensor.size();
            if found != shape {
                return Err(Error::StackShape {
                    leaf: *leaf,
                    item,
                    expected: shape,
                    found,
                });
            }
        }
        *leaf += 1;
        Ok(Tensor::f_stack(&items, 0)?)
    }
}

macro_rules! numbers_become_a_tensor {
    ($($number:ty),*) => {$(
        impl StackItem for $number {
            type Stacked = Tensor;

            fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Tensor> {
                *leaf += 1;
                Ok(Tensor::f_from_slice(&items)?)
            }
        }
    )*};
}

numbers_become_a_tensor!(bool, u8, i8, i16, i32, i64, f32, f64);

impl StackItem for usize {
    type Stacked = Tensor;

    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Tensor> {
        let items = items
            .into_iter()
            .map(|item| i64::try_from(item).map_err(Error::data))
            .collect::<Result<Vec<_>>>()?;
        i64::stack(items, leaf)
    }
}

impl StackItem for String {
    type Stacked = Vec<String>;

    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Vec<String>> {
        *leaf += 1;
        Ok(items)
    }
}

impl<T: StackItem> StackItem for Vec<T> {
    type Stacked = Vec<T::Stacked>;

    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Self::Stacked> {
        let expected = items.first().map_or(0, Vec::len);
        let found = items
            .iter()
            .map(Vec::len)
            .enumerate()
            .find(|&(_, len)| len != expected);
        if let Some((item, found)) = found {
            return Err(Error::StackLength {
                leaf: *leaf,
                item,
                expected,
                found,
            });
        }
        let mut columns: Vec<Vec<T>> = Vec::new();
        columns.resize_with(expected, || Vec::with_capacity(items.len()));
        for item in items {
            for (column, part) in columns.iter_mut().zip(item) {
                column.push(part);
            }
        }
        columns
            .into_iter()
            .map(|column| T::stack(column, leaf))
            .collect()
    }
}

impl<T: StackItem, const N: usize> StackItem for [T; N]
where
    [T::Stacked; N]: Tree,
{
    type Stacked = [T::Stacked; N];

    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Self::Stacked> {
        let items = items.into_iter().map(Vec::from).collect();
        let stacked: Vec<T::Stacked> = Vec::stack(items, leaf)?;
        let found = stacked.len();
        stacked.try_into().map_err(|_| Error::StackLength {
            leaf: *leaf,
            item: 0,
            expected: N,
            found,
        })
    }
}

impl<K: Ord + Send + std::fmt::Display + Tree, T: StackItem> StackItem for BTreeMap<K, T> {
    type Stacked = BTreeMap<K, T::Stacked>;

    fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Self::Stacked> {
        let expected = items.first().map_or(0, BTreeMap::len);
        let mut columns: BTreeMap<K, Vec<T>> = BTreeMap::new();
        for (number, item) in items.into_iter().enumerate() {
            let found = item.len();
            for (key, part) in item {
                columns.entry(key).or_default().push(part);
            }
            let complete = columns.values().all(|column| column.len() == number + 1);
            if !complete {
                return Err(Error::StackLength {
                    leaf: *leaf,
                    item: number,
                    expected,
                    found,
                });
            }
        }
        columns
            .into_iter()
            .map(|(key, column)| Ok((key, T::stack(column, leaf)?)))
            .collect()
    }
}

macro_rules! tuples_go_part_by_part {
    ($(($($part:ident . $index:tt),+))*) => {$(
        impl<$($part: StackItem),+> StackItem for ($($part,)+) {
            type Stacked = ($($part::Stacked,)+);

            fn stack(items: Vec<Self>, leaf: &mut usize) -> Result<Self::Stacked> {
                let mut columns = ($(Vec::<$part>::with_capacity(items.len()),)+);
                for item in items {
                    $(columns.$index.push(item.$index);)+
                }
                Ok(($($part::stack(columns.$index, leaf)?,)+))
            }
        }
    )*};
}

tuples_go_part_by_part! {
    (A.0)
    (A.0, B.1)
    (A.0, B.1, C.2)
    (A.0, B.1, C.2, D.3)
    (A.0, B.1, C.2, D.3, E.4)
    (A.0, B.1, C.2, D.3, E.4, F.5)
}

/// Stacks the leaves of several trees, place by place.
pub(super) fn stack_leaves(items: &[Vec<Tensor>]) -> Result<Vec<Tensor>> {
    let items = items
        .iter()
        .map(|leaves| leaves.iter().map(Tensor::shallow_clone).collect());
    let mut leaf = 0;
    Vec::stack(items.collect(), &mut leaf)
}

/// The first of the samples of a batch.
pub(super) fn first<T>(items: Vec<T>) -> Result<T> {
    items.into_iter().next().ok_or_else(|| Error::Argument {
        operation: "Collate::collate",
        expected: "at least one sample".into(),
        found: "none".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(tensor: &Tensor) -> Vec<i64> {
        Vec::try_from(&tensor.flatten(0, -1)).unwrap_or_default()
    }

    #[test]
    fn numbers_tensors_and_text_are_batched_part_by_part() -> Result<()> {
        let items = vec![
            (
                Tensor::from_slice(&[1i64, 2]),
                7i64,
                "a".to_owned(),
                [1.5f32, 2.5],
            ),
            (
                Tensor::from_slice(&[3i64, 4]),
                8i64,
                "b".to_owned(),
                [3.5f32, 4.5],
            ),
        ];
        let (rows, labels, text, [left, right]) = Stack.collate(items)?;
        assert_eq!((rows.size(), values(&rows)), (vec![2, 2], vec![1, 2, 3, 4]));
        assert_eq!(values(&labels), [7, 8]);
        assert_eq!(text, ["a", "b"]);
        assert_eq!(Vec::<f32>::try_from(&left)?, [1.5, 3.5]);
        assert_eq!(Vec::<f32>::try_from(&right)?, [2.5, 4.5]);
        Ok(())
    }

    #[test]
    fn a_shape_that_differs_is_named() {
        let items = vec![
            (1i64, Tensor::from_slice(&[1i64, 2])),
            (2i64, Tensor::from_slice(&[1i64, 2, 3])),
        ];
        let message = Stack
            .collate(items)
            .map_err(|error| error.to_string())
            .err();
        let message = message.unwrap_or_default();
        assert!(
            message.contains("leaf 1") && message.contains("sample 1"),
            "{message}"
        );
        assert!(
            message.contains("[2]") && message.contains("[3]"),
            "{message}"
        );
    }

    #[test]
    fn maps_with_other_keys_are_refused() {
        let items = vec![BTreeMap::from([("a", 1i64)]), BTreeMap::from([("b", 2i64)])];
        assert!(matches!(
            Stack.collate(items),
            Err(Error::StackLength { item: 1, .. })
        ));
    }

    #[test]
    fn trees_are_stacked_leaf_by_leaf() -> Result<()> {
        use crate::data::StackLeaves;
        let item = |n: i64| (Tensor::from(n), vec![Tensor::from(n * 10)]);
        let (outer, inner) = StackLeaves.collate(vec![item(1), item(2)])?;
        assert_eq!(
            (values(&outer), values(&inner[0])),
            (vec![1, 2], vec![10, 20])
        );
        Ok(())
    }
}
