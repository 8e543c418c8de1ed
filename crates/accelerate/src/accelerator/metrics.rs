use tch::Tensor;

use super::Accelerator;
use crate::nn::IntoInput;
use crate::tree::Tree;
use crate::{Result, collectives};

impl Accelerator {
    /// Joins the values of all ranks and drops what only filled up the last batch.
    ///
    /// Call it inside the loop over a prepared loader, with one value for each sample
    /// of the batch: over an epoch every sample is seen exactly once.
    ///
    /// # Shapes
    /// - input: `[batch, ...]`
    /// - output: `[samples of this step on all ranks, ...]`
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`collectives::gather`].
    ///
    /// # Source
    /// `Accelerator.gather_for_metrics`.
    pub fn gather_for_metrics<T: Tree>(&self, values: impl IntoInput<T>) -> Result<T> {
        let mut gathered = collectives::gather(self.state(), values.into_input())?;
        let state = self.gradient_state();
        let remainder = state.remainder().filter(|&samples| samples > 0);
        if let Some(samples) = remainder.filter(|_| state.end_of_dataloader()) {
            gathered.visit_mut(&mut |leaf| {
                *leaf = first_rows(leaf, samples)?;
                Ok(())
            })?;
        }
        Ok(gathered)
    }
}

/// The first rows of a tensor, or all where there are fewer; scalars stay.
fn first_rows(tensor: &Tensor, rows: usize) -> Result<Tensor> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    match tensor.size().first() {
        Some(&length) if length > rows => Ok(tensor.f_narrow(0, 0, rows)?),
        _ => Ok(tensor.shallow_clone()),
    }
}
