use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tch::Tensor;

use crate::{Error, Result};

/// Samples that can be asked for by index.
///
/// Worker threads share one data set, so `get` takes `&self` and may run for
/// several indices at once. Tensors may not be shared between threads as they
/// are: keep plain values and build tensors in [`Collate`](super::Collate), or
/// use [`TensorDataset`].
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item: Send;

    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether there is no sample at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the sample `index`, which is below [`len`](Self::len).
    ///
    /// # Errors
    /// Whatever reading can run into; [`Error::data`] takes any error. The
    /// loader adds the index.
    fn get(&self, index: usize) -> Result<Self::Item>;
}

impl<T: Clone + Send + Sync> Dataset for [T] {
    type Item = T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn get(&self, index: usize) -> Result<T> {
        <[T]>::get(self, index)
            .cloned()
            .ok_or_else(|| out_of_range(index, <[T]>::len(self)))
    }
}

impl<T: Clone + Send + Sync> Dataset for Vec<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn get(&self, index: usize) -> Result<T> {
        Dataset::get(self.as_slice(), index)
    }
}

macro_rules! dataset_behind_pointer {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Item = D::Item;

            fn len(&self) -> usize {
                (**self).len()
            }

            fn get(&self, index: usize) -> Result<D::Item> {
                (**self).get(index)
            }
        }
    )*};
}

dataset_behind_pointer!(&D, Box<D>, Arc<D>);

/// A data set whose samples come from a closure.
///
/// ```
/// use accelerate::data::{Dataset, FnDataset};
///
/// let squares = FnDataset::new(5, |index| Ok(index * index));
/// assert_eq!(squares.get(3)?, 9);
/// # Ok::<(), accelerate::Error>(())
/// ```
pub struct FnDataset<F> {
    len: usize,
    get: F,
}

impl<T: Send, F: Fn(usize) -> Result<T> + Send + Sync> FnDataset<F> {
    /// A data set of `len` samples that `get` reads.
    pub fn new(len: usize, get: F) -> Self {
        Self { len, get }
    }
}

impl<T: Send, F: Fn(usize) -> Result<T> + Send + Sync> Dataset for FnDataset<F> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<T> {
        (self.get)(index)
    }
}

impl<F> fmt::Debug for FnDataset<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnDataset")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Samples cut from `N` tensors along their first dimension.
///
/// # Shapes
/// - tensor `k`: `[len, ...]`, with one `len` for all
/// - sample: `N` tensors `[...]`, views without a copy
pub struct TensorDataset<const N: usize> {
    len: usize,
    // A tensor may move between threads but not be shared; the lock is held for one `select`.
    tensors: Mutex<[Tensor; N]>,
}

impl<const N: usize> TensorDataset<N> {
    /// A data set over the rows of `tensors`.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no tensor, one has no dimension, or they differ in length.
    pub fn new(tensors: [Tensor; N]) -> Result<Self> {
        let lens: Vec<Option<i64>> = tensors
            .iter()
            .map(|tensor| tensor.size().first().copied())
            .collect();
        match lens.first() {
            Some(&Some(first)) if lens.iter().all(|&len| len == Some(first)) => Ok(Self {
                len: usize::try_from(first).unwrap_or_default(),
                tensors: Mutex::new(tensors),
            }),
            _ => Err(Error::Argument {
                operation: "TensorDataset::new",
                expected: "tensors with one first dimension".into(),
                found: format!("shapes {:?}", tensors.map(|tensor| tensor.size())),
            }),
        }
    }
}

impl<const N: usize> Dataset for TensorDataset<N> {
    type Item = [Tensor; N];

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<[Tensor; N]> {
        if index >= self.len {
            return Err(out_of_range(index, self.len));
        }
        let row = i64::try_from(index).map_err(Error::data)?;
        let tensors = self.tensors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sample = tensors.deref().each_ref().map(Tensor::shallow_clone);
        for tensor in &mut sample {
            *tensor = tensor.f_select(0, row)?;
        }
        Ok(sample)
    }
}

impl<const N: usize> fmt::Debug for TensorDataset<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorDataset")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

fn out_of_range(index: usize, len: usize) -> Error {
    Error::Argument {
        operation: "Dataset::get",
        expected: format!("an index below {len}"),
        found: index.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_out_of_range_is_an_error() {
        let data = vec![1, 2, 3];
        assert_eq!(Dataset::get(&data, 2).unwrap_or_default(), 3);
        let message = Dataset::get(&data, 3).map_err(|e| e.to_string());
        assert_eq!(
            message,
            Err("`Dataset::get` needs an index below 3, found 3".into())
        );
    }

    #[test]
    fn rows_of_tensors_are_samples() -> Result<()> {
        let data = TensorDataset::new([
            Tensor::from_slice(&[1i64, 2, 3, 4]).f_view([2, 2])?,
            Tensor::from_slice(&[7i64, 8]),
        ])?;
        let [row, label] = data.get(1)?;
        assert_eq!(Vec::<i64>::try_from(&row)?, [3, 4]);
        assert_eq!(label.int64_value(&[]), 8);
        assert!(data.get(2).is_err());
        Ok(())
    }

    #[test]
    fn tensors_of_different_length_are_refused() {
        let tensors = [Tensor::from_slice(&[1i64]), Tensor::from_slice(&[1i64, 2])];
        let message = TensorDataset::new(tensors).map_err(|e| e.to_string()).err();
        assert!(message.is_some_and(|m| m.contains("[[1], [2]]")));
    }
}
