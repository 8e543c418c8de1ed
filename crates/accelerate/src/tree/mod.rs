//! Nested values of tensors that can be walked.
//!
//! What can be done to them without other ranks is here too: joining, slicing, moving,
//! casting, looking at shapes. What takes several ranks is in [`collectives`](crate::collectives).

mod concatenate;
mod containers;
mod convert;
mod kinds;
mod look;
mod message;
mod parcel;
mod path;
mod rows;
mod structure;

use tch::Tensor;

pub use accelerate_derive::Tree;

use crate::Result;

pub use concatenate::{concatenate, pad_input_tensors, slice_tensors};
pub use convert::{SendOptions, convert_floating, convert_to_fp32, send_to_device};
pub(crate) use kinds::KINDS;
pub use look::{Numbers, find_batch_size, find_device, listify};
pub(crate) use message::{MessageReader, MessageWriter, as_bytes};
pub use parcel::{Parcel, Part, Plain};
pub use path::TreePath;
pub use structure::{TensorSpec, TreeStructure, data_structure, initialize_tensors};

/// A nested value whose leaves are tensors.
///
/// Batches, module arguments and module outputs are trees, so the loader, the
/// collectives and the hooks can move, cast, gather or replace every tensor
/// without knowing the type. Values that are no tensors (numbers, text, flags)
/// may stand in a tree and are left alone. The order of the walk is the order of
/// declaration, for maps the order of keys, and is the same on every rank.
///
/// A function over trees is a closure over leaves:
///
/// ```
/// use accelerate::tch::Tensor;
/// use accelerate::tree::Tree;
///
/// #[derive(Tree)]
/// struct Batch {
///     ids: Tensor,
///     mask: Option<Tensor>,
/// }
///
/// let mut batch = Batch { ids: Tensor::from_slice(&[1, 2]), mask: None };
/// batch.visit_mut(&mut |leaf| {
///     *leaf = leaf.f_add_scalar(1)?;
///     Ok(())
/// })?;
/// assert_eq!(batch.ids, Tensor::from_slice(&[2, 3]));
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// The nested lists, tuples and maps of `accelerate.utils.operations`, and its
/// `recursively_apply`. Differs: the type says what is inside, so an unsupported leaf
/// does not compile.
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

    /// As [`visit`](Self::visit), and tells the way to each tensor, which begins with `path`.
    ///
    /// A tree that does not say more numbers its tensors.
    ///
    /// # Errors
    /// The first error that `leaf` returns.
    fn visit_paths(
        &self,
        path: &TreePath<'_>,
        leaf: &mut dyn FnMut(&TreePath<'_>, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let mut number = 0;
        self.visit(&mut |tensor| {
            number += 1;
            leaf(&path.index(number - 1), tensor)
        })
    }

    /// As [`visit_mut`](Self::visit_mut), and tells the way to each tensor.
    ///
    /// # Errors
    /// The first error that `leaf` returns.
    fn visit_paths_mut(
        &mut self,
        path: &TreePath<'_>,
        leaf: &mut dyn FnMut(&TreePath<'_>, &mut Tensor) -> Result<()>,
    ) -> Result<()> {
        let mut number = 0;
        self.visit_mut(&mut |tensor| {
            number += 1;
            leaf(&path.index(number - 1), tensor)
        })
    }

    /// Takes the tree apart, so that other ranks can put the same one together.
    ///
    /// `derive(Tree)` writes this for types without skipped fields; a tree written by hand
    /// that is to be dealt out from rank 0 implements it together with [`unpack`](Self::unpack).
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a type that cannot be taken apart,
    /// which is what an implementation that leaves this out answers.
    fn pack(&self, parcel: &mut Parcel) -> Result<()> {
        let _untouched = parcel;
        Err(parcel::cannot_travel::<Self>())
    }

    /// Puts together what [`pack`](Self::pack) took apart.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the parcel holds something else.
    fn unpack(parcel: &mut Parcel) -> Result<Self>
    where
        Self: Sized,
    {
        let _untouched = parcel;
        Err(parcel::cannot_travel::<Self>())
    }

    /// As [`pack`](Self::pack), for a list; lists of plain values have one for each sample.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    fn pack_list(items: &[Self], parcel: &mut Parcel) -> Result<()>
    where
        Self: Sized,
    {
        parcel.push(Part::Count(items.len()));
        items.iter().try_for_each(|item| item.pack(parcel))
    }

    /// As [`unpack`](Self::unpack), for what [`pack_list`](Self::pack_list) took apart.
    ///
    /// # Errors
    /// As [`unpack`](Self::unpack).
    fn unpack_list(parcel: &mut Parcel) -> Result<Vec<Self>>
    where
        Self: Sized,
    {
        let count = parcel.count()?;
        (0..count).map(|_| Self::unpack(parcel)).collect()
    }
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
