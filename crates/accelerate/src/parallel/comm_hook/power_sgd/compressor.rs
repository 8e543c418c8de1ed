use accelerate_torch::{ProcessGroup, ReduceOp, Work};
use tch::Tensor;

use super::orthogonalize::orthogonalize;
use super::plan::{Batch, Plan};
use super::{PowerSgdOptions, SharedMemory};
use crate::{Error, Result};

/// Averages buckets over ranks through products of thin matrices, one bucket at a time.
pub(super) struct Compressor {
    options: PowerSgdOptions,
    group: ProcessGroup,
    ranks: i64,
    memory: SharedMemory,
}

/// One batch of matrices and what its product is made of.
struct Product<'a> {
    of: &'a Batch,
    /// `[batch, rows, columns]`
    matrices: Tensor,
    /// `[batch, rows, rank]`
    left: Tensor,
    /// `[batch, columns, rank]`
    right: Tensor,
}

impl Compressor {
    pub(super) fn new(options: PowerSgdOptions, group: ProcessGroup, memory: SharedMemory) -> Self {
        Self {
            options,
            ranks: i64::try_from(group.size()).unwrap_or(i64::MAX),
            group,
            memory,
        }
    }

    /// Puts the average into the plan's buffer. `drawn` are the first right matrices;
    /// without them those of the last step are used again.
    pub(super) fn average(&self, plan: &Plan, drawn: Option<&[Tensor]>) -> Result<()> {
        let wanted = self.add_last_error(plan)?;
        let rest = self.send_rest(&plan.rest)?;
        if !plan.batches.is_empty() {
            self.average_matrices(plan, drawn)?;
        }
        self.receive_rest(rest, &plan.rest)?;
        if let Some(wanted) = wanted {
            let lost = wanted.f_sub(&plan.values)?;
            self.memory.lock().errors.insert(plan.bucket, lost);
        }
        let length = plan.buffer.size().iter().product();
        let mut buffer = plan.buffer.shallow_clone();
        if plan.values.data_ptr() != buffer.data_ptr() {
            buffer.f_copy_(&plan.values.f_narrow(0, 0, length)?)?;
        }
        Ok(())
    }

    /// Adds what the last step lost; answers a copy of what is to be averaged now.
    fn add_last_error(&self, plan: &Plan) -> Result<Option<Tensor>> {
        if !self.options.use_error_feedback {
            return Ok(None);
        }
        let mut values = plan.values.shallow_clone();
        if let Some(error) = self.memory.lock().errors.get(&plan.bucket) {
            let _ = values.f_add_(error)?;
        }
        Ok(Some(values.f_detach_copy()?))
    }

    /// Starts the sum of the gradients that are not compressed.
    fn send_rest(&self, rest: &[Tensor]) -> Result<Option<(Tensor, Work)>> {
        if rest.is_empty() {
            return Ok(None);
        }
        let flat = rest
            .iter()
            .map(|one| one.f_reshape([-1]))
            .collect::<Result<Vec<_>, _>>()?;
        let packed = Tensor::f_cat(&flat, 0)?;
        let work = self.group.all_reduce_async(&packed, ReduceOp::Sum)?;
        Ok(Some((packed, work)))
    }

    fn receive_rest(&self, sent: Option<(Tensor, Work)>, rest: &[Tensor]) -> Result<()> {
        let Some((mut packed, work)) = sent else {
            return Ok(());
        };
        work.wait()?;
        let _ = packed.f_div_scalar_(self.ranks)?;
        let mut start = 0;
        for one in rest {
            let length = one.size().iter().product();
            one.shallow_clone()
                .f_copy_(&packed.f_narrow(0, start, length)?.f_view_as(one)?)?;
            start += length;
        }
        Ok(())
    }

    fn average_matrices(&self, plan: &Plan, drawn: Option<&[Tensor]>) -> Result<()> {
        let options = (plan.values.f_kind()?, plan.values.device());
        let lengths = |shape: fn(&Batch) -> [i64; 3]| -> i64 {
            plan.batches
                .iter()
                .map(|batch| shape(batch).iter().product::<i64>())
                .sum()
        };
        let lefts = Tensor::f_empty([lengths(Batch::left)], options)?;
        let last = self.memory.lock().rights.remove(&plan.bucket);
        let mut rights = match (drawn, last) {
            (None, Some(last)) => last,
            (Some(_), _) => Tensor::f_empty([lengths(Batch::right)], options)?,
            (None, None) => return Err(lost_matrices(plan.bucket)),
        };
        let products = products(&plan.batches, &lefts, &rights)?;
        for (number, one) in products.iter().enumerate() {
            if let Some(drawn) = drawn.and_then(|drawn| drawn.get(number)) {
                one.right.shallow_clone().f_copy_(drawn)?;
            }
            orthogonalize(&one.right, self.options.orthogonalization_epsilon)?;
            let _ = one.matrices.f_bmm_out(&one.left, &one.right)?;
        }
        self.group.all_reduce(&lefts, ReduceOp::Sum)?;
        for one in &products {
            orthogonalize(&one.left, self.options.orthogonalization_epsilon)?;
            let turned = one.matrices.f_transpose(1, 2)?;
            let _ = turned.f_bmm_out(&one.right, &one.left)?;
        }
        self.group.all_reduce(&rights, ReduceOp::Sum)?;
        let _ = rights.f_div_scalar_(self.ranks)?;
        for one in &products {
            one.multiply()?;
        }
        if self.options.warm_start {
            self.memory.lock().rights.insert(plan.bucket, rights);
        }
        Ok(())
    }
}

/// A step before this one failed in its middle, or a saved state lacks a part.
fn lost_matrices(bucket: usize) -> Error {
    Error::StateMismatch {
        target: "PowerSGD",
        problems: vec![format!(
            "bucket {bucket} began in an earlier step, but its thin matrices are gone; \
             load a checkpoint or prepare the model anew"
        )],
    }
}

/// The thin matrices of each batch, as views of the memory that is sent at once.
fn products<'a>(batches: &'a [Batch], lefts: &Tensor, rights: &Tensor) -> Result<Vec<Product<'a>>> {
    let (mut left_start, mut right_start) = (0, 0);
    batches
        .iter()
        .map(|of| {
            Ok(Product {
                of,
                matrices: match of.matrices.as_slice() {
                    [one] => one.f_unsqueeze(0)?,
                    several => Tensor::f_stack(several, 0)?,
                },
                left: next_view(lefts, &mut left_start, of.left())?,
                right: next_view(rights, &mut right_start, of.right())?,
            })
        })
        .collect()
}

fn next_view(memory: &Tensor, start: &mut i64, shape: [i64; 3]) -> Result<Tensor> {
    let length = shape.iter().product();
    let view = memory.f_narrow(0, *start, length)?.f_view(shape)?;
    *start += length;
    Ok(view)
}

impl Product<'_> {
    /// Puts the product into the gradients.
    fn multiply(&self) -> Result<()> {
        let right = self.right.f_transpose(1, 2)?;
        let _ = self.left.f_bmm_out(&self.matrices, &right)?;
        if self.of.matrices.len() > 1 {
            for (number, matrix) in (0i64..).zip(&self.of.matrices) {
                let mut matrix = matrix.shallow_clone();
                matrix.f_copy_(&self.matrices.f_select(0, number)?)?;
            }
        }
        Ok(())
    }
}
