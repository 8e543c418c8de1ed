use std::ops::Range;

use tch::Tensor;

use super::parcel::{Parcel, Part};
use crate::{Error, Result};

/// Parcels as batches: every tensor has one row for each sample, and so has a list of plain
/// values that is as long as the tensors.
impl Parcel {
    /// The number of samples: rows of the first tensor, or of the first list where there is none.
    pub(crate) fn samples(&self) -> Option<usize> {
        let of_tensor = self.parts.iter().find_map(|part| match part {
            Part::Tensor(tensor) => Some(rows_of(tensor).unwrap_or(1)),
            _ => None,
        });
        of_tensor.or_else(|| {
            self.parts.iter().find_map(|part| match part {
                Part::Rows(rows) => Some(rows.len()),
                _ => None,
            })
        })
    }

    /// One batch of the samples of all.
    pub(crate) fn join(mut batches: Vec<Self>) -> Result<Self> {
        if batches.len() == 1 {
            return Ok(batches.swap_remove(0));
        }
        let Some((first, others)) = batches.split_first() else {
            return Ok(Self::default());
        };
        for (index, other) in others.iter().enumerate() {
            if other.parts.len() != first.parts.len() {
                return Err(misfit(
                    index + 1,
                    format!("{} parts", first.parts.len()),
                    format!("{} parts", other.parts.len()),
                ));
            }
        }
        let counts: Vec<Option<usize>> = batches.iter().map(Self::samples).collect();
        let parts = (0..first.parts.len()).map(|place| {
            let column: Vec<&Part> = batches
                .iter()
                .filter_map(|batch| batch.parts.get(place))
                .collect();
            join_column(&column, &counts)
        });
        Ok(Self {
            parts: parts.collect::<Result<_>>()?,
        })
    }

    /// The batch with the samples of another behind its own; what is no row stays as it is.
    pub(crate) fn extended(&self, other: &Self) -> Result<Self> {
        if self.parts.len() != other.parts.len() {
            let parts = |parcel: &Self| format!("{} parts", parcel.parts.len());
            return Err(misfit(1, parts(self), parts(other)));
        }
        let counts = [self.samples(), other.samples()];
        let parts = self.parts.iter().zip(&other.parts).map(|pair| match pair {
            (Part::Tensor(own), Part::Tensor(_)) if own.dim() == 0 => {
                Ok(Part::Tensor(own.shallow_clone()))
            }
            (Part::Tensor(_), Part::Tensor(_)) => join_column(&[pair.0, pair.1], &counts),
            (Part::Rows(own), Part::Rows(others))
                if [Some(own.len()), Some(others.len())] == counts =>
            {
                join_column(&[pair.0, pair.1], &counts)
            }
            (own, _) => same(&[own]),
        });
        Ok(Self {
            parts: parts.collect::<Result<_>>()?,
        })
    }

    /// The samples of a range, which lies within the batch, as views.
    ///
    /// A scalar tensor, and a list that has not one value for each sample, stay whole.
    pub(crate) fn cut(&self, range: Range<usize>) -> Result<Self> {
        let samples = self.samples().unwrap_or(0);
        let parts = self.parts.iter().map(|part| {
            Ok(match part {
                Part::Tensor(tensor) => Part::Tensor(cut_tensor(tensor, &range, samples)?),
                Part::Rows(rows) if rows.len() == samples => {
                    Part::Rows(rows.get(range.clone()).unwrap_or_default().to_vec())
                }
                Part::Rows(rows) => Part::Rows(rows.clone()),
                Part::Plain(value) => Part::Plain(value.clone()),
                Part::Count(count) => Part::Count(*count),
            })
        });
        Ok(Self {
            parts: parts.collect::<Result<_>>()?,
        })
    }
}

fn rows_of(tensor: &Tensor) -> Option<usize> {
    tensor
        .size()
        .first()
        .and_then(|&rows| usize::try_from(rows).ok())
}

fn cut_tensor(tensor: &Tensor, range: &Range<usize>, samples: usize) -> Result<Tensor> {
    match rows_of(tensor) {
        None => Ok(tensor.shallow_clone()),
        Some(rows) if rows == samples => {
            let start = i64::try_from(range.start).map_err(Error::data)?;
            let length = i64::try_from(range.len()).map_err(Error::data)?;
            Ok(tensor.f_narrow(0, start, length)?)
        }
        Some(rows) => Err(Error::Argument {
            operation: "DataLoaderDispatcher",
            expected: format!("{samples} rows in every tensor of a batch, as in its first"),
            found: format!("{rows} in one of shape {:?}", tensor.size()),
        }),
    }
}

/// Joins what stands at one place of every batch.
fn join_column(column: &[&Part], samples: &[Option<usize>]) -> Result<Part> {
    if let Some(tensors) = all(column, |part| match part {
        Part::Tensor(tensor) => Some(tensor),
        _ => None,
    }) {
        return Ok(Part::Tensor(join_tensors(&tensors)?));
    }
    let lists = all(column, |part| match part {
        Part::Rows(rows) => Some(rows),
        _ => None,
    });
    if let Some(lists) = lists {
        let one_each = lists
            .iter()
            .zip(samples)
            .all(|(list, &samples)| Some(list.len()) == samples);
        if one_each {
            return Ok(Part::Rows(lists.into_iter().flatten().cloned().collect()));
        }
    }
    same(column)
}

fn all<'a, T>(column: &[&'a Part], of: impl Fn(&'a Part) -> Option<&'a T>) -> Option<Vec<&'a T>> {
    column.iter().map(|part| of(part)).collect()
}

fn join_tensors(tensors: &[&Tensor]) -> Result<Tensor> {
    let expected = tensors
        .first()
        .map(|tensor| tensor.size())
        .unwrap_or_default();
    for (batch, tensor) in tensors.iter().enumerate() {
        let found = tensor.size();
        if found.is_empty() || found.get(1..) != expected.get(1..) {
            let expected = match expected.get(1..) {
                Some(row) => format!("rows of shape {row:?}"),
                None => "one row for each sample".to_owned(),
            };
            return Err(misfit(batch, expected, format!("shape {found:?}")));
        }
    }
    Ok(Tensor::f_cat(tensors, 0)?)
}

/// What is no row has to be the same in every batch.
fn same(column: &[&Part]) -> Result<Part> {
    let Some(first) = column.first() else {
        return Ok(Part::Count(0));
    };
    for (batch, part) in column.iter().enumerate() {
        let equal = match (first, part) {
            (Part::Plain(left), Part::Plain(right)) => left == right,
            (Part::Rows(left), Part::Rows(right)) => left == right,
            (Part::Count(left), Part::Count(right)) => left == right,
            _ => false,
        };
        if !equal {
            return Err(misfit(batch, first.describe(), part.describe()));
        }
    }
    Ok(match first {
        Part::Rows(rows) => Part::Rows(rows.clone()),
        Part::Plain(value) => Part::Plain(value.clone()),
        Part::Count(count) => Part::Count(*count),
        Part::Tensor(tensor) => Part::Tensor(tensor.shallow_clone()),
    })
}

fn misfit(batch: usize, expected: String, found: String) -> Error {
    Error::UnevenBatches {
        batch,
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plain, Tree};
    use super::*;

    fn parcel(tree: &dyn Tree) -> Result<Parcel> {
        let mut parcel = Parcel::default();
        tree.pack(&mut parcel)?;
        Ok(parcel)
    }

    type Batch = (Tensor, Vec<String>, i64, Vec<i64>);

    fn batch(values: &[i64]) -> Result<Parcel> {
        let names: Vec<String> = values.iter().map(|v| format!("n{v}")).collect();
        parcel(&(
            Tensor::from_slice(values),
            names,
            7i64,
            vec![1i64, 2, 3, 4, 5, 6, 7],
        ))
    }

    #[test]
    fn rows_are_joined_and_cut_and_the_rest_stays() -> Result<()> {
        let all = Parcel::join(vec![batch(&[1, 2])?, batch(&[3])?])?;
        assert_eq!(all.samples(), Some(3));
        let (values, names, plain, list) = Batch::unpack(&mut all.cut(1..3)?)?;
        assert_eq!(Vec::<i64>::try_from(&values)?, [2, 3]);
        assert_eq!((names, plain), (vec!["n2".into(), "n3".into()], 7));
        assert_eq!(list, [1, 2, 3, 4, 5, 6, 7]);
        Ok(())
    }

    #[test]
    fn what_differs_between_batches_is_named() -> Result<()> {
        let narrow = parcel(&Tensor::from_slice(&[1i64, 2]).f_view([1, 2])?)?;
        let wide = parcel(&Tensor::from_slice(&[1i64, 2, 3]).f_view([1, 3])?)?;
        let message = Parcel::join(vec![narrow, wide])
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        assert!(
            message.contains("[2]") && message.contains("[1, 3]"),
            "{message}"
        );
        assert!(message.contains("split_batches"), "{message}");
        let plain = |n: i64| parcel(&(Tensor::from_slice(&[n]), n));
        assert!(Parcel::join(vec![plain(1)?, plain(1)?]).is_ok());
        assert!(matches!(
            Parcel::join(vec![plain(1)?, plain(2)?]),
            Err(Error::UnevenBatches { batch: 1, .. })
        ));
        Ok(())
    }

    #[test]
    fn a_tensor_with_other_rows_is_refused() -> Result<()> {
        let odd = parcel(&(
            Tensor::from_slice(&[1i64, 2]),
            Tensor::from_slice(&[1i64, 2, 3]),
        ))?;
        assert!(odd.cut(0..1).is_err());
        let scalar = parcel(&(Tensor::from_slice(&[1i64, 2]), Tensor::from(9i64)))?;
        assert_eq!(scalar.cut(1..2)?.samples(), Some(1));
        Ok(())
    }

    #[test]
    fn plain_values_keep_their_type() {
        assert_eq!(f32::try_from(Plain::from(0.1f32)).ok(), Some(0.1));
        assert!(bool::try_from(Plain::from(1i64)).is_err());
        assert!(u8::try_from(Plain::Unsigned(256)).is_err());
    }
}
