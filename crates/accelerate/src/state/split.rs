//! Every rank takes its part of something that all ranks have.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::ops::Range;

use tch::Tensor;

use super::PartialState;
use crate::tree::{self, Tree};
use crate::{Error, Result};

/// Which items of a whole one rank takes.
///
/// Parts are consecutive and differ in length by one at most; the first ranks have the
/// longer ones. With padding all are as long as the longest: what is missing is filled
/// up with copies of the last item of the whole.
///
/// ```
/// use accelerate::state::Share;
///
/// let share = Share::new(5, 2, 1, true);
/// assert_eq!(share.range(), 3..5);
/// assert_eq!(share.padding(), 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    start: usize,
    end: usize,
    padding: usize,
    whole: usize,
}

impl Share {
    /// The share of rank `rank` of `world` ranks in `length` items; `world` 0 counts as 1.
    #[must_use]
    pub fn new(length: usize, world: usize, rank: usize, apply_padding: bool) -> Self {
        let world = world.max(1);
        let (each, extra) = (length / world, length % world);
        let start = (rank * each + rank.min(extra)).min(length);
        let real = if rank < world {
            each + usize::from(rank < extra)
        } else {
            0
        };
        let longest = each + usize::from(extra > 0);
        Self {
            start,
            end: start + real,
            padding: if apply_padding { longest - real } else { 0 },
            whole: length,
        }
    }

    /// The items of the whole that are this rank's.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// How many copies of the last item follow them.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// The positions in the whole of everything in the part, copies too.
    pub fn positions(&self) -> impl Iterator<Item = usize> + use<> {
        let last = self.whole.saturating_sub(1);
        self.range().chain(std::iter::repeat_n(last, self.padding))
    }
}

/// One rank's part of a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<P> {
    /// The items: first this rank's own, then the copies.
    pub items: P,
    /// How many items are this rank's own.
    pub real: usize,
    /// How many copies of the whole's last item follow them; 0 without padding.
    pub padding: usize,
}

/// What [`PartialState::split_between_processes`] takes.
///
/// Lists and tensors are cut, maps and tuples are cut value by value, and values that are
/// neither (numbers, text) go whole to every rank. Cut data sets by their indices: `0..n`.
pub trait Split: Sized {
    /// What one rank gets.
    type Part;

    /// Appends the number of items of each list and tensor inside.
    ///
    /// # Errors
    /// [`Error::Argument`] for a tensor without dimensions.
    fn lengths(&self, found: &mut Vec<usize>) -> Result<()>;

    /// The items of `share`.
    ///
    /// # Errors
    /// A tensor operation that fails.
    fn part(self, share: Share) -> Result<Self::Part>;

    /// Everything, as a process by itself gets it.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    fn whole(self) -> Result<Self::Part>;
}

/// A nested value of which every tensor is cut along dimension 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EachTensor<T>(
    /// The nested value.
    pub T,
);

impl PartialState {
    /// This rank's part of something that all ranks have, with the number of real items.
    ///
    /// A process by itself gets everything as it is. See [`Share`] for who gets what;
    /// with `apply_padding` the part of every rank has the same length, so that results
    /// can be gathered, and [`Part::real`] says how many of them count.
    ///
    /// ```
    /// # let state = accelerate::PartialState::new()?;
    /// let part = state.split_between_processes(vec!["a", "b", "c"], false)?;
    /// // One process: a, b, c. Of two, rank 0: a, b; rank 1: c.
    /// assert_eq!(part.real, part.items.len());
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if lists or tensors inside differ in length, or there is none.
    ///
    /// # Source
    /// `PartialState.split_between_processes`. Differs: no rank asks another, tensors stay
    /// on their device, an empty list stays empty under padding, nested maps count by
    /// their values and not by their keys, and the number of real items is told.
    pub fn split_between_processes<S: Split>(
        &self,
        inputs: S,
        apply_padding: bool,
    ) -> Result<Part<S::Part>> {
        let mut lengths = Vec::new();
        inputs.lengths(&mut lengths)?;
        let length = one_length(&lengths)?;
        if self.num_processes() == 1 {
            return Ok(Part {
                items: inputs.whole()?,
                real: length,
                padding: 0,
            });
        }
        let share = Share::new(
            length,
            self.num_processes(),
            self.process_index(),
            apply_padding,
        );
        Ok(Part {
            items: inputs.part(share)?,
            real: share.range().len(),
            padding: share.padding(),
        })
    }
}

fn one_length(lengths: &[usize]) -> Result<usize> {
    let wrong = |expected: &str| Error::Argument {
        operation: "split between processes",
        expected: expected.to_owned(),
        found: format!("{lengths:?}"),
    };
    match lengths {
        [] => Err(wrong("at least one list or tensor, by length")),
        [first, rest @ ..] if rest.iter().all(|length| length == first) => Ok(*first),
        _ => Err(wrong("lists and tensors of one length")),
    }
}

impl<T: Clone> Split for Vec<T> {
    type Part = Self;

    fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
        found.push(self.len());
        Ok(())
    }

    fn part(mut self, share: Share) -> Result<Self> {
        let last = self.last().cloned();
        self.truncate(share.range().end);
        self.drain(..share.range().start.min(self.len()));
        if let Some(last) = last {
            self.extend(std::iter::repeat_n(last, share.padding()));
        }
        Ok(self)
    }

    fn whole(self) -> Result<Self> {
        Ok(self)
    }
}

impl<T: Clone> Split for &[T] {
    type Part = Vec<T>;

    fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
        found.push(self.len());
        Ok(())
    }

    fn part(self, share: Share) -> Result<Vec<T>> {
        let items = share.positions().filter_map(|index| self.get(index));
        Ok(items.cloned().collect())
    }

    fn whole(self) -> Result<Vec<T>> {
        Ok(self.to_vec())
    }
}

impl<T: Clone, const N: usize> Split for [T; N] {
    type Part = Vec<T>;

    fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
        found.push(N);
        Ok(())
    }

    fn part(self, share: Share) -> Result<Vec<T>> {
        self.as_slice().part(share)
    }

    fn whole(self) -> Result<Vec<T>> {
        Ok(self.into())
    }
}

/// Positions, such as the indices of a data set.
impl Split for Range<usize> {
    type Part = Vec<usize>;

    fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
        found.push(self.len());
        Ok(())
    }

    fn part(self, share: Share) -> Result<Vec<usize>> {
        let positions = share.positions().map(|index| self.start + index);
        Ok(positions.filter(|index| self.contains(index)).collect())
    }

    fn whole(self) -> Result<Vec<usize>> {
        Ok(self.collect())
    }
}

impl Split for Tensor {
    type Part = Self;

    fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
        found.push(rows(self)?);
        Ok(())
    }

    fn part(self, share: Share) -> Result<Self> {
        cut(&self, share)
    }

    fn whole(self) -> Result<Self> {
        Ok(self)
    }
}

fn rows(tensor: &Tensor) -> Result<usize> {
    let rows = tensor.size().first().copied();
    rows.and_then(|rows| usize::try_from(rows).ok())
        .ok_or_else(|| Error::Argument {
            operation: "split between processes",
            expected: "tensors with a dimension to cut".to_owned(),
            found: "a tensor without dimensions".to_owned(),
        })
}

fn cut(tensor: &Tensor, share: Share) -> Result<Tensor> {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let range = share.range();
    let own = tensor.f_narrow(0, number(range.start), number(range.len()))?;
    let last = number(rows(tensor)?) - 1;
    if share.padding() == 0 || last < 0 {
        return Ok(own);
    }
    let mut shape = tensor.size();
    shape[0] = number(share.padding());
    let copies = tensor.f_narrow(0, last, 1)?.f_expand(&shape, false)?;
    Ok(Tensor::f_cat(&[own, copies], 0)?)
}

impl<T: Tree> Split for EachTensor<T> {
    type Part = T;

    fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
        for leaf in tree::leaves(&self.0)? {
            found.push(rows(&leaf)?);
        }
        Ok(())
    }

    fn part(mut self, share: Share) -> Result<T> {
        self.0.visit_mut(&mut |leaf| {
            *leaf = cut(leaf, share)?;
            Ok(())
        })?;
        Ok(self.0)
    }

    fn whole(self) -> Result<T> {
        Ok(self.0)
    }
}

macro_rules! split_map {
    ([$($generics:tt)*] $type:ty => $part:ty) => {
        impl<$($generics)*> Split for $type {
            type Part = $part;

            fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
                self.values().try_for_each(|value| value.lengths(found))
            }

            fn part(self, share: Share) -> Result<$part> {
                self.into_iter().map(|(key, value)| Ok((key, value.part(share)?))).collect()
            }

            fn whole(self) -> Result<$part> {
                self.into_iter().map(|(key, value)| Ok((key, value.whole()?))).collect()
            }
        }
    };
}

split_map!([K: Ord, V: Split] BTreeMap<K, V> => BTreeMap<K, V::Part>);
split_map!([K: Hash + Eq, V: Split, S: BuildHasher + Default] HashMap<K, V, S> => HashMap<K, V::Part, S>);

macro_rules! goes_whole {
    ($($type:ty),* $(,)?) => {$(
        impl Split for $type {
            type Part = Self;

            fn lengths(&self, _found: &mut Vec<usize>) -> Result<()> {
                Ok(())
            }

            fn part(self, _share: Share) -> Result<Self> {
                Ok(self)
            }

            fn whole(self) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

goes_whole!(
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

macro_rules! split_tuple {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Split),+> Split for ($($name,)+) {
            type Part = ($($name::Part,)+);

            fn lengths(&self, found: &mut Vec<usize>) -> Result<()> {
                $(self.$index.lengths(found)?;)+
                Ok(())
            }

            fn part(self, share: Share) -> Result<Self::Part> {
                Ok(($(self.$index.part(share)?,)+))
            }

            fn whole(self) -> Result<Self::Part> {
                Ok(($(self.$index.whole()?,)+))
            }
        }
    };
}

split_tuple!(A 0);
split_tuple!(A 0, B 1);
split_tuple!(A 0, B 1, C 2);
split_tuple!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_the_whole_once_and_are_equally_long_with_padding(
            length in 0usize..40, world in 1usize..9,
        ) {
            let shares: Vec<_> = (0..world).map(|rank| Share::new(length, world, rank, true)).collect();
            let all: Vec<usize> = shares.iter().flat_map(Share::range).collect();
            prop_assert_eq!(all, (0..length).collect::<Vec<_>>());
            let longest = length.div_ceil(world);
            for share in shares {
                prop_assert_eq!(share.positions().count(), longest);
                prop_assert!(share.positions().skip(share.range().len()).all(|at| at + 1 == length));
            }
        }
    }

    #[test]
    fn lists_of_different_lengths_are_refused() -> Result<()> {
        let state = PartialState::from_environment(
            &accelerate_plan::env::Environment::from_pairs([("ACCELERATE_USE_CPU", "yes")]),
            &Default::default(),
        )?;
        let uneven = state.split_between_processes((vec![1, 2], vec![1]), false);
        assert!(uneven.unwrap_err().to_string().contains("[2, 1]"));
        let none = state.split_between_processes(("text".to_owned(), 5), false);
        assert!(none.unwrap_err().to_string().contains("at least one list"));
        let scalar = state.split_between_processes(Tensor::from(1i64), false);
        assert!(
            scalar
                .unwrap_err()
                .to_string()
                .contains("without dimensions")
        );
        Ok(())
    }
}
