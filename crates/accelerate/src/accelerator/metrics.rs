use serde::Serialize;
use serde::de::DeserializeOwned;
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
    /// `Accelerator.gather_for_metrics`. Differs: values that are no tensors have a method
    /// of their own, [`gather_for_metrics_object`](Self::gather_for_metrics_object).
    #[track_caller]
    pub fn gather_for_metrics<T: Tree>(&self, values: impl IntoInput<T>) -> Result<T> {
        let mut gathered = collectives::gather(self.state(), values.into_input())?;
        if let Some(samples) = self.samples_of_last_step() {
            gathered.visit_mut(&mut |leaf| {
                *leaf = first_rows(leaf, samples)?;
                Ok(())
            })?;
        }
        Ok(gathered)
    }

    /// As [`gather_for_metrics`](Self::gather_for_metrics) for values that are no tensors,
    /// one for each sample of the batch.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`collectives::gather_object`].
    ///
    /// # Source
    /// `Accelerator.gather_for_metrics(.., use_gather_object=True)`.
    #[track_caller]
    pub fn gather_for_metrics_object<T: Serialize + DeserializeOwned>(
        &self,
        values: Vec<T>,
    ) -> Result<Vec<T>> {
        let mut gathered = collectives::gather_object(self.state(), values)?;
        if let Some(samples) = self.samples_of_last_step() {
            gathered.truncate(samples);
        }
        Ok(gathered)
    }

    /// How many samples of the last step are real, where some only fill it up.
    fn samples_of_last_step(&self) -> Option<usize> {
        let state = self.gradient_state();
        if !state.end_of_dataloader() {
            return None;
        }
        if state.remainder().is_none() && self.state().use_distributed() {
            tracing::info!(
                "the loader does not know how many samples its last step has, so nothing is dropped"
            );
        }
        state.remainder().filter(|&samples| samples > 0)
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
