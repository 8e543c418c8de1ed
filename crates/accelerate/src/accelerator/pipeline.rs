//! Models of which each rank runs a stage.

use super::Accelerator;
use crate::Result;
use crate::parallel::{PipelineOptions, Pipelined, PipelinedModel};

impl Accelerator {
    /// Cuts a model into as many stages as there are processes, for inference.
    ///
    /// # Collective
    /// Every rank calls this with the same model and options.
    ///
    /// # Errors
    /// As [`PipelinedModel::new`].
    ///
    /// # Source
    /// `accelerate.inference.prepare_pippy`.
    pub fn prepare_pipeline<M: Pipelined>(
        &self,
        model: M,
        options: &PipelineOptions,
    ) -> Result<PipelinedModel<M>> {
        PipelinedModel::new(self.state(), model, options)
    }
}
