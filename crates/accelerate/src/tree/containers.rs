//! What can stand in a tree.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::hash::{BuildHasher, Hash};

use tch::Tensor;

use super::{Parcel, Part, Plain, Tree, TreePath, parcel};
use crate::Result;
use crate::nn::IntoInput;

type Leaf<'f> = &'f mut dyn FnMut(&Tensor) -> Result<()>;
type LeafMut<'f> = &'f mut dyn FnMut(&mut Tensor) -> Result<()>;
type PathLeaf<'f> = &'f mut dyn FnMut(&TreePath<'_>, &Tensor) -> Result<()>;
type PathLeafMut<'f> = &'f mut dyn FnMut(&TreePath<'_>, &mut Tensor) -> Result<()>;

impl Tree for Tensor {
    fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
        leaf(self)
    }

    fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
        leaf(self)
    }

    fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
        leaf(path, self)
    }

    fn visit_paths_mut(&mut self, path: &TreePath<'_>, leaf: PathLeafMut<'_>) -> Result<()> {
        leaf(path, self)
    }

    fn pack(&self, parcel: &mut Parcel) -> Result<()> {
        parcel.push(Part::Tensor(self.shallow_clone()));
        Ok(())
    }

    fn unpack(parcel: &mut Parcel) -> Result<Self> {
        parcel.tensor()
    }
}

macro_rules! tree_by_items {
    ($([$($generics:tt)*] $type:ty { $($sent:tt)* })*) => {$(
        impl<$($generics)*> Tree for $type {
            fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
                self.iter().try_for_each(|item| item.visit(leaf))
            }

            fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
                self.iter_mut().try_for_each(|item| item.visit_mut(leaf))
            }

            fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
                let mut items = self.iter().enumerate();
                items.try_for_each(|(index, item)| item.visit_paths(&path.index(index), leaf))
            }

            fn visit_paths_mut(
                &mut self,
                path: &TreePath<'_>,
                leaf: PathLeafMut<'_>,
            ) -> Result<()> {
                let mut items = self.iter_mut().enumerate();
                items.try_for_each(|(index, item)| item.visit_paths_mut(&path.index(index), leaf))
            }

            $($sent)*
        }
    )*};
}

tree_by_items! {
    [T: Tree] Vec<T> {
        fn pack(&self, parcel: &mut Parcel) -> Result<()> {
            T::pack_list(self, parcel)
        }

        fn unpack(parcel: &mut Parcel) -> Result<Self> {
            T::unpack_list(parcel)
        }
    }
    [T: Tree, const N: usize] [T; N] {
        fn pack(&self, parcel: &mut Parcel) -> Result<()> {
            parcel.push(Part::Count(N));
            self.iter().try_for_each(|item| item.pack(parcel))
        }

        fn unpack(parcel: &mut Parcel) -> Result<Self> {
            let items: Vec<T> = (0..parcel.count()?)
                .map(|_| T::unpack(parcel))
                .collect::<Result<_>>()?;
            let found = items.len();
            items
                .try_into()
                .map_err(|_| parcel::unexpected(format!("{N} items"), &Part::Count(found)))
        }
    }
}

/// A value that is there or not; it has the name of its place.
impl<T: Tree> Tree for Option<T> {
    fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
        self.iter().try_for_each(|item| item.visit(leaf))
    }

    fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
        self.iter_mut().try_for_each(|item| item.visit_mut(leaf))
    }

    fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
        self.iter()
            .try_for_each(|item| item.visit_paths(path, leaf))
    }

    fn visit_paths_mut(&mut self, path: &TreePath<'_>, leaf: PathLeafMut<'_>) -> Result<()> {
        self.iter_mut()
            .try_for_each(|item| item.visit_paths_mut(path, leaf))
    }

    fn pack(&self, parcel: &mut Parcel) -> Result<()> {
        parcel.push(Part::Count(usize::from(self.is_some())));
        self.iter().try_for_each(|item| item.pack(parcel))
    }

    fn unpack(parcel: &mut Parcel) -> Result<Self> {
        match parcel.count()? {
            0 => Ok(None),
            _ => T::unpack(parcel).map(Some),
        }
    }
}

/// Behind a pointer to a type that is not known a tree cannot be put together again, so
/// boxed trees stay on their rank.
impl<T: Tree + ?Sized> Tree for Box<T> {
    fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
        (**self).visit(leaf)
    }

    fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
        (**self).visit_mut(leaf)
    }

    fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
        (**self).visit_paths(path, leaf)
    }

    fn visit_paths_mut(&mut self, path: &TreePath<'_>, leaf: PathLeafMut<'_>) -> Result<()> {
        (**self).visit_paths_mut(path, leaf)
    }
}

impl<K: Ord + Display + Tree, T: Tree> Tree for BTreeMap<K, T> {
    fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
        self.values().try_for_each(|item| item.visit(leaf))
    }

    fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
        self.values_mut().try_for_each(|item| item.visit_mut(leaf))
    }

    fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
        self.iter()
            .try_for_each(|(key, item)| item.visit_paths(&path.key(key), leaf))
    }

    fn visit_paths_mut(&mut self, path: &TreePath<'_>, leaf: PathLeafMut<'_>) -> Result<()> {
        self.iter_mut()
            .try_for_each(|(key, item)| item.visit_paths_mut(&path.key(key), leaf))
    }

    fn pack(&self, parcel: &mut Parcel) -> Result<()> {
        parcel.push(Part::Count(self.len()));
        self.iter().try_for_each(|(key, item)| {
            key.pack(parcel)?;
            item.pack(parcel)
        })
    }

    fn unpack(parcel: &mut Parcel) -> Result<Self> {
        (0..parcel.count()?)
            .map(|_| Ok((K::unpack(parcel)?, T::unpack(parcel)?)))
            .collect()
    }
}

/// Walked in the order of keys: a map's own order differs from process to process.
impl<K: Ord + Display, T: Tree, S> Tree for HashMap<K, T, S> {
    fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
        by_key(self.iter())
            .into_iter()
            .try_for_each(|(_, item)| item.visit(leaf))
    }

    fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
        by_key(self.iter_mut())
            .into_iter()
            .try_for_each(|(_, item)| item.visit_mut(leaf))
    }

    fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
        by_key(self.iter())
            .into_iter()
            .try_for_each(|(key, item)| item.visit_paths(&path.key(key), leaf))
    }

    fn visit_paths_mut(&mut self, path: &TreePath<'_>, leaf: PathLeafMut<'_>) -> Result<()> {
        by_key(self.iter_mut())
            .into_iter()
            .try_for_each(|(key, item)| item.visit_paths_mut(&path.key(key), leaf))
    }
}

fn by_key<K: Ord, V>(entries: impl Iterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable_by(|left, right| left.0.cmp(&right.0));
    entries
}

impl<K, T, I, S> IntoInput<HashMap<K, T, S>> for HashMap<K, I, S>
where
    K: Eq + Hash,
    I: IntoInput<T>,
    S: BuildHasher + Default,
{
    fn into_input(self) -> HashMap<K, T, S> {
        self.into_iter()
            .map(|(key, item)| (key, item.into_input()))
            .collect()
    }
}

macro_rules! tree_without_tensors {
    ($($type:ty { $($sent:tt)* })*) => {$(
        impl Tree for $type {
            fn visit(&self, _leaf: Leaf<'_>) -> Result<()> {
                Ok(())
            }

            fn visit_mut(&mut self, _leaf: LeafMut<'_>) -> Result<()> {
                Ok(())
            }

            $($sent)*
        }
    )*};
}

macro_rules! tree_of_plain_values {
    ($($type:ty),* $(,)?) => {
        tree_without_tensors! {$($type {
            fn pack(&self, parcel: &mut Parcel) -> Result<()> {
                parcel.push(Part::Plain(self.clone().into()));
                Ok(())
            }

            fn unpack(parcel: &mut Parcel) -> Result<Self> {
                parcel.plain()?.try_into()
            }

            fn pack_list(items: &[Self], parcel: &mut Parcel) -> Result<()> {
                parcel.push(Part::Rows(items.iter().cloned().map(Plain::from).collect()));
                Ok(())
            }

            fn unpack_list(parcel: &mut Parcel) -> Result<Vec<Self>> {
                parcel.rows()?.into_iter().map(Self::try_from).collect()
            }
        })*}
    };
}

tree_of_plain_values!(
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

// These cannot be dealt out from rank 0.
tree_without_tensors! {
    char {}
    u16 {}
    i8 {}
    i16 {}
    isize {}
}

tree_without_tensors! {
    () {
        fn pack(&self, _parcel: &mut Parcel) -> Result<()> {
            Ok(())
        }

        fn unpack(_parcel: &mut Parcel) -> Result<Self> {
            Ok(())
        }
    }
}

macro_rules! tree_for_tuple {
    ($($name:ident . $index:tt),+) => {
        impl<$($name: Tree),+> Tree for ($($name,)+) {
            fn visit(&self, leaf: Leaf<'_>) -> Result<()> {
                $(self.$index.visit(leaf)?;)+
                Ok(())
            }

            fn visit_mut(&mut self, leaf: LeafMut<'_>) -> Result<()> {
                $(self.$index.visit_mut(leaf)?;)+
                Ok(())
            }

            fn visit_paths(&self, path: &TreePath<'_>, leaf: PathLeaf<'_>) -> Result<()> {
                $(self.$index.visit_paths(&path.index($index), leaf)?;)+
                Ok(())
            }

            fn visit_paths_mut(
                &mut self,
                path: &TreePath<'_>,
                leaf: PathLeafMut<'_>,
            ) -> Result<()> {
                $(self.$index.visit_paths_mut(&path.index($index), leaf)?;)+
                Ok(())
            }

            fn pack(&self, parcel: &mut Parcel) -> Result<()> {
                $(self.$index.pack(parcel)?;)+
                Ok(())
            }

            fn unpack(parcel: &mut Parcel) -> Result<Self> {
                Ok(($($name::unpack(parcel)?,)+))
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
    use crate::tree::leaves;

    fn values(tree: &dyn Tree) -> Result<Vec<i64>> {
        Ok(leaves(tree)?.iter().map(|t| t.int64_value(&[])).collect())
    }

    fn paths(tree: &dyn Tree) -> Result<Vec<String>> {
        let mut found = Vec::new();
        tree.visit_paths(&TreePath::root(), &mut |path, _| {
            found.push(path.to_string());
            Ok(())
        })?;
        Ok(found)
    }

    #[derive(Tree)]
    enum Output {
        Loss { loss: Tensor },
        Pair(Tensor, Option<Tensor>),
        Nothing,
    }

    #[test]
    fn leaves_come_in_declaration_order() -> Result<()> {
        let tree = (
            Tensor::from(1i64),
            vec![Tensor::from(2i64), Tensor::from(3i64)],
            Some(Tensor::from(4i64)),
            BTreeMap::from([("b", Tensor::from(6i64)), ("a", Tensor::from(5i64))]),
            7usize,
        );
        assert_eq!(values(&tree)?, [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            paths(&tree)?,
            ["[0]", "[1][0]", "[1][1]", "[2]", "[3][a]", "[3][b]"]
        );
        Ok(())
    }

    #[test]
    fn a_hash_map_is_walked_in_the_order_of_keys() -> Result<()> {
        // One hasher in 20! would do it by chance.
        let mut map: HashMap<i64, Tensor> = (0..20).map(|i| (i, Tensor::from(i))).collect();
        assert_eq!(values(&map)?, (0..20).collect::<Vec<_>>());
        let mut order = 0;
        map.visit_mut(&mut |leaf| {
            *leaf = leaf.f_add_scalar(10 * order)?;
            order += 1;
            Ok(())
        })?;
        assert_eq!(values(&map)?, (0..20).map(|i| 11 * i).collect::<Vec<_>>());
        Ok(())
    }

    #[test]
    fn a_leaf_can_be_replaced() -> Result<()> {
        let mut tree = (Tensor::from(1i64), vec![Tensor::from(2i64)]);
        tree.visit_mut(&mut |leaf| {
            *leaf = leaf.f_add_scalar(10)?;
            Ok(())
        })?;
        assert_eq!(values(&tree)?, [11, 12]);
        tree.visit_paths_mut(&TreePath::root(), &mut |path, leaf| {
            if path.to_string() == "[1][0]" {
                *leaf = Tensor::from(0i64);
            }
            Ok(())
        })?;
        assert_eq!(values(&tree)?, [11, 0]);
        Ok(())
    }

    #[test]
    fn a_derived_tree_keeps_its_type_and_names_its_fields() -> Result<()> {
        let mut all = vec![
            Output::Loss {
                loss: Tensor::from(1i64),
            },
            Output::Pair(Tensor::from(2i64), Some(Tensor::from(3i64))),
            Output::Nothing,
        ];
        all.visit_mut(&mut |leaf| {
            *leaf = leaf.f_add_scalar(1)?;
            Ok(())
        })?;
        assert_eq!(values(&all)?, [2, 3, 4]);
        assert!(matches!(
            &all[..],
            [Output::Loss { .. }, Output::Pair(..), Output::Nothing]
        ));
        assert_eq!(
            paths(&all)?,
            ["[0].Loss.loss", "[1].Pair[0]", "[1].Pair[1]"]
        );
        Ok(())
    }
}
