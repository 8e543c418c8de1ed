use tch::Tensor;

use super::PowerSgdOptions;
use crate::Result;
use crate::parallel::comm_hook::GradientBucket;

/// What of a bucket is seen as a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::parallel::comm_hook) enum Layout {
    /// Each gradient that is large enough.
    PerGradient,
    /// The whole bucket, as a square.
    WholeBucket,
}

/// Matrices of one shape that are computed together.
#[derive(Debug)]
pub(super) struct Batch {
    /// `[rows, columns]` each, views of [`Plan::values`].
    pub(super) matrices: Vec<Tensor>,
    rows: i64,
    columns: i64,
    /// The number of columns of their thin matrices.
    rank: i64,
}

impl Batch {
    /// The shape of the left thin matrices.
    pub(super) fn left(&self) -> [i64; 3] {
        [self.len(), self.rows, self.rank]
    }

    /// The shape of the right thin matrices.
    pub(super) fn right(&self) -> [i64; 3] {
        [self.len(), self.columns, self.rank]
    }

    fn len(&self) -> i64 {
        i64::try_from(self.matrices.len()).unwrap_or(i64::MAX)
    }

    /// A batch for each matrix by itself.
    fn singles(self) -> impl Iterator<Item = Self> {
        let Self {
            matrices,
            rows,
            columns,
            rank,
        } = self;
        matrices.into_iter().map(move |matrix| Self {
            matrices: vec![matrix],
            rows,
            columns,
            rank,
        })
    }
}

/// What is compressed of a bucket, and what is sent as it is.
#[derive(Debug)]
pub(super) struct Plan {
    /// The bucket's index.
    pub(super) bucket: usize,
    /// What the reducer gets back.
    pub(super) buffer: Tensor,
    /// What is computed with: the buffer, or a longer copy of it.
    pub(super) values: Tensor,
    /// Matrices, shape by shape in the order in which shapes come first.
    pub(super) batches: Vec<Batch>,
    /// Gradients too small to compress, views of `values`.
    pub(super) rest: Vec<Tensor>,
    /// The number of values without and with compression.
    pub(super) sizes: (u64, u64),
}

impl Plan {
    pub(super) fn new(
        bucket: &GradientBucket<'_>,
        options: &PowerSgdOptions,
        layout: Layout,
    ) -> Result<Self> {
        let buffer = bucket.buffer()?;
        let mut plan = Self {
            bucket: bucket.index(),
            values: buffer.shallow_clone(),
            buffer,
            batches: Vec::new(),
            rest: Vec::new(),
            sizes: (0, 0),
        };
        match layout {
            Layout::PerGradient => plan.per_gradient(&bucket.gradients()?, options)?,
            Layout::WholeBucket => plan.whole_bucket(options)?,
        }
        Ok(plan)
    }

    fn per_gradient(&mut self, gradients: &[Tensor], options: &PowerSgdOptions) -> Result<()> {
        for gradient in gradients {
            let rows = gradient.size().first().copied().unwrap_or(1);
            let values: i64 = gradient.size().iter().product();
            let columns = values.checked_div(rows).unwrap_or(0);
            let rank = rank_of(rows, columns, options);
            let thin = (rows + columns) * rank;
            // Counts of values, far below the 2^53 that a float64 holds exactly.
            if (thin as f64) * options.min_compression_rate < values as f64 {
                self.count(values, thin);
                self.add(gradient.f_view([rows, columns])?, rows, columns, rank);
            } else {
                self.count(values, values);
                self.rest.push(gradient.shallow_clone());
            }
        }
        if !options.batch_tensors_with_same_shape {
            let batches = std::mem::take(&mut self.batches);
            self.batches = batches.into_iter().flat_map(Batch::singles).collect();
        }
        Ok(())
    }

    fn add(&mut self, matrix: Tensor, rows: i64, columns: i64, rank: i64) {
        let same = |batch: &&mut Batch| (batch.rows, batch.columns) == (rows, columns);
        match self.batches.iter_mut().find(same) {
            Some(batch) => batch.matrices.push(matrix),
            None => self.batches.push(Batch {
                matrices: vec![matrix],
                rows,
                columns,
                rank,
            }),
        }
    }

    fn whole_bucket(&mut self, options: &PowerSgdOptions) -> Result<()> {
        let length = self.buffer.size().iter().product();
        let side = side_of_square(length);
        let rank = rank_of(side, side, options);
        self.values = tch::no_grad(|| {
            self.buffer
                .f_constant_pad_nd([0, side * side - length])
                .map_err(crate::Error::from)
        })?;
        self.count(length, 2 * side * rank);
        self.add(self.values.f_view([side, side])?, side, side, rank);
        Ok(())
    }

    fn count(&mut self, without: i64, with: i64) {
        self.sizes.0 += without.unsigned_abs();
        self.sizes.1 += with.unsigned_abs();
    }
}

/// How many columns the thin matrices of a matrix have.
fn rank_of(rows: i64, columns: i64, options: &PowerSgdOptions) -> i64 {
    let wanted = i64::try_from(options.matrix_approximation_rank.get()).unwrap_or(i64::MAX);
    wanted.min(rows).min(columns)
}

/// The side of the smallest square with room for so many values.
fn side_of_square(values: i64) -> i64 {
    let root = values.isqrt();
    if root * root < values { root + 1 } else { root }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_have_room() {
        for (values, side) in [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4)] {
            assert_eq!(side_of_square(values), side, "{values}");
        }
    }
}
