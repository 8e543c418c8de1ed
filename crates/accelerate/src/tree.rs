//! Nested values of tensors that can be walked.

use std::collections::BTreeMap;

use tch::Tensor;

pub use accelerate_derive::Tree;

use crate::Result;

/// A nested value whose leaves are tensors.
///
/// Batches, module arguments and module outputs are trees, so the loader, the
/// collectives and the hooks can move, cast, gather or replace every tensor
/// without knowing the type. Values that are no tensors (numbers, text, flags)
/// may stand in a tree and are left alone. The order of the walk is the order of
/// declaration and is the same on every rank.
///
/// # Source
/// The nested lists, tuples and maps of `accelerate.utils.operations`. Differs:
/// the type says what is inside, so an unsupported leaf does not compile.
pub trait Tree {
    /// Calls `leaf` for every tensor, in order.
    ///
    /// # Errors
    /// The first error that `leaf` returns.
    fn visit(&self, leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()>;

    /// Calls `leaf` for every tensor, in order; `leaf` may put another tensor there.
    ///
    /// # Errors
    /// The first error that `leaf` returns.
    fn visit_mut(&mut self, leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()>;
}

/// Shallow handles on every tensor of a tree, in order.
///
/// # Errors
/// None of its own; the signature follows [`Tree::visit`].
pub fn leaves(tree: &dyn Tree) -> Result<Vec<Tensor>> {
    let mut found = Vec::new();
    tree.visit(&mut |tensor| {
        found.push(tensor.shallow_clone());
        Ok(())
    })?;
    Ok(found)
}

impl Tree for Tensor {
    fn visit(&self, leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
        leaf(self)
    }

    fn visit_mut(&mut self, leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()> {
        leaf(self)
    }
}

macro_rules! tree_by_items {
    ($([$($generics:tt)*] $type:ty),* $(,)?) => {$(
        impl<$($generics)*> Tree for $type {
            fn visit(&self, leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
                self.iter().try_for_each(|item| item.visit(leaf))
            }

            fn visit_mut(&mut self, leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()> {
                self.iter_mut().try_for_each(|item| item.visit_mut(leaf))
            }
        }
    )*};
}

tree_by_items!([T: Tree] Option<T>, [T: Tree] Vec<T>, [T: Tree, const N: usize] [T; N]);

impl<T: Tree + ?Sized> Tree for Box<T> {
    fn visit(&self, leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
        (**self).visit(leaf)
    }

    fn visit_mut(&mut self, leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()> {
        (**self).visit_mut(leaf)
    }
}

impl<K: Ord, T: Tree> Tree for BTreeMap<K, T> {
    fn visit(&self, leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
        self.values().try_for_each(|item| item.visit(leaf))
    }

    fn visit_mut(&mut self, leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()> {
        self.values_mut().try_for_each(|item| item.visit_mut(leaf))
    }
}

macro_rules! tree_without_tensors {
    ($($type:ty),* $(,)?) => {$(
        impl Tree for $type {
            fn visit(&self, _leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
                Ok(())
            }

            fn visit_mut(&mut self, _leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()> {
                Ok(())
            }
        }
    )*};
}

tree_without_tensors!(
    (),
    bool,
    u8,
    u32,
    u64,
    usize,
    i32,
    i64,
    f32,
    f64,
    String,
    &'static str
);

macro_rules! tree_for_tuple {
    ($($name:ident . $index:tt),+) => {
        impl<$($name: Tree),+> Tree for ($($name,)+) {
            fn visit(&self, leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
                $(self.$index.visit(leaf)?;)+
                Ok(())
            }

            fn visit_mut(&mut self, leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>) -> Result<()> {
                $(self.$index.visit_mut(leaf)?;)+
                Ok(())
            }
        }
    };
}

tree_for_tuple!(A.0);
tree_for_tuple!(A.0, B.1);
tree_for_tuple!(A.0, B.1, C.2);
tree_for_tuple!(A.0, B.1, C.2, D.3);
tree_for_tuple!(A.0, B.1, C.2, D.3, E.4);
tree_for_tuple!(A.0, B.1, C.2, D.3, E.4, F.5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_come_in_declaration_order() -> Result<()> {
        let tree = (
            Tensor::from(1i64),
            vec![Tensor::from(2i64), Tensor::from(3i64)],
            Some(Tensor::from(4i64)),
            BTreeMap::from([("b", Tensor::from(6i64)), ("a", Tensor::from(5i64))]),
            7usize,
        );
        let values: Vec<i64> = leaves(&tree)?.iter().map(|t| t.int64_value(&[])).collect();
        assert_eq!(values, [1, 2, 3, 4, 5, 6]);
        Ok(())
    }

    #[test]
    fn a_leaf_can_be_replaced() -> Result<()> {
        let mut tree = (Tensor::from(1i64), vec![Tensor::from(2i64)]);
        tree.visit_mut(&mut |leaf| {
            *leaf = leaf.f_add_scalar(10)?;
            Ok(())
        })?;
        assert_eq!(tree.0.int64_value(&[]), 11);
        assert_eq!(tree.1[0].int64_value(&[]), 12);
        Ok(())
    }
}
