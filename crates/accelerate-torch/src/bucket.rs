//! Gradients that are reduced together.

use std::ptr::{self, NonNull};

use tch::Tensor;

use crate::status::{check, own, push, raw_list, target};
use crate::{Result, ffi};

/// A bucket of gradients, as a communication hook sees it.
#[derive(Debug)]
pub struct GradBucket {
    handle: NonNull<ffi::GradBucket>,
}

impl GradBucket {
    /// # Safety
    /// The bucket outlives this value.
    pub(crate) unsafe fn from_raw(handle: NonNull<ffi::GradBucket>) -> Self {
        Self { handle }
    }

    /// Its number; buckets are reduced in this order.
    #[must_use]
    pub fn index(&self) -> usize {
        // SAFETY: the bucket is alive.
        unsafe { ffi::acc_bucket_index(self.handle.as_ptr()) }
    }

    /// Whether it is the last one of this backward pass.
    #[must_use]
    pub fn is_last(&self) -> bool {
        // SAFETY: the bucket is alive.
        unsafe { ffi::acc_bucket_is_last(self.handle.as_ptr()) }
    }

    /// All gradients of the bucket in one flat tensor. A hook may change it in place.
    ///
    /// # Shapes
    /// - output: `[numel of all gradients]`
    ///
    /// # Errors
    /// None that is known.
    pub fn buffer(&self) -> Result<Tensor> {
        let mut out = ptr::null_mut();
        // SAFETY: the bucket is alive; the shim gives the handle up.
        unsafe {
            check(
                "bucket buffer",
                ffi::acc_bucket_buffer(self.handle.as_ptr(), &mut out),
            )?;
            Ok(own(out))
        }
    }

    /// The gradients, each as a view of the buffer shaped as its parameter.
    ///
    /// # Errors
    /// None that is known.
    pub fn gradients(&self) -> Result<Vec<Tensor>> {
        self.tensors(true)
    }

    /// The parameters, in the order of [`gradients`](Self::gradients).
    ///
    /// # Errors
    /// None that is known.
    pub fn parameters(&self) -> Result<Vec<Tensor>> {
        self.tensors(false)
    }

    fn tensors(&self, gradients: bool) -> Result<Vec<Tensor>> {
        let mut tensors = Vec::new();
        // SAFETY: the bucket is alive; `push` gets the vector it expects.
        unsafe {
            check(
                "bucket tensors",
                ffi::acc_bucket_tensors(
                    self.handle.as_ptr(),
                    gradients,
                    target(&mut tensors),
                    push,
                ),
            )?;
        }
        Ok(tensors)
    }
}

/// Which tensors share a bucket, in their order, when buckets hold up to these sizes.
///
/// The first bucket of each kind takes `limits[0]` bytes, the next `limits[1]`, and so
/// on; the last limit is for all that follow. Tensors of different kind or device never
/// share.
///
/// # Errors
/// What libtorch refuses, such as no tensors or no limit.
///
/// # Source
/// `torch.distributed._compute_bucket_assignment_by_size`.
pub fn assign_buckets(tensors: &[Tensor], limits: &[usize]) -> Result<Vec<Vec<usize>>> {
    let list = raw_list(tensors);
    let mut bucket_of = vec![0; tensors.len()];
    let mut count = 0;
    // SAFETY: tensors and limits are valid for the call; `bucket_of` has room for one number each.
    unsafe {
        check(
            "bucket assignment",
            ffi::acc_bucket_assignment(
                list.as_ptr(),
                list.len(),
                limits.as_ptr(),
                limits.len(),
                bucket_of.as_mut_ptr(),
                &mut count,
            ),
        )?;
    }
    let mut buckets = vec![Vec::new(); count];
    for (index, bucket) in bucket_of.into_iter().enumerate() {
        buckets[bucket].push(index);
    }
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta;
    use tch::Kind;

    #[test]
    fn buckets_are_filled_up_to_their_limits() -> Result<()> {
        let tensors = [
            (100, Kind::Float),
            (50, Kind::Float),
            (200, Kind::Float),
            (10, Kind::Double),
        ]
        .map(|(n, kind)| meta::empty(&[n], kind));
        let tensors = tensors.into_iter().collect::<Result<Vec<_>>>()?;
        assert_eq!(
            assign_buckets(&tensors, &[400, 800])?,
            [vec![0], vec![1, 2], vec![3]]
        );
        assert!(assign_buckets(&[], &[400]).is_err());
        Ok(())
    }
}
