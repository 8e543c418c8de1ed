use tch::Tensor;

use super::stack::stack_leaves;
use crate::Result;
use crate::tree::{Tree, leaves};

/// Makes one batch of samples.
///
/// Any closure from `Vec<Item>` to a tree of tensors is one; [`Stack`](super::Stack)
/// is the default. It runs in the loader's worker threads.
pub trait Collate<Item>: Send + Sync {
    /// The batch: a tree, so that it can be moved, gathered and trimmed.
    type Batch: Tree + Send;

    /// Makes a batch of `items`, which hold at least one sample.
    ///
    /// # Errors
    /// Whatever the samples do not allow; the loader adds their indices.
    fn collate(&self, items: Vec<Item>) -> Result<Self::Batch>;
}

impl<F, Item, Batch> Collate<Item> for F
where
    F: Fn(Vec<Item>) -> Result<Batch> + Send + Sync,
    Batch: Tree + Send,
{
    type Batch = Batch;

    fn collate(&self, items: Vec<Item>) -> Result<Batch> {
        self(items)
    }
}

/// Stacks samples of a type of your own, tensor by tensor, into one value of that type.
///
/// Every tensor of the batch is the stack of the samples' tensors at the same
/// place of the tree. Only tensors are stacked: other fields are those of the
/// first sample, so let what differs between samples be a tensor.
///
/// # Shapes
/// - sample: each tensor `[...]`, the same in every sample
/// - batch: each tensor `[batch, ...]`
#[derive(Debug, Clone, Copy, Default)]
pub struct StackLeaves;

impl<Item: Tree + Send> Collate<Item> for StackLeaves {
    type Batch = Item;

    /// # Errors
    /// [`Error::StackShape`](crate::Error::StackShape) if shapes differ,
    /// [`Error::StackLength`](crate::Error::StackLength) if samples hold different numbers of tensors.
    fn collate(&self, items: Vec<Item>) -> Result<Item> {
        let columns = items
            .iter()
            .map(|item| leaves(item))
            .collect::<Result<Vec<_>>>()?;
        let stacked = stack_leaves(&columns)?;
        let mut batch = super::stack::first(items)?;
        let mut stacked = stacked.into_iter();
        batch.visit_mut(&mut |leaf: &mut Tensor| {
            if let Some(tensor) = stacked.next() {
                *leaf = tensor;
            }
            Ok(())
        })?;
        Ok(batch)
    }
}
