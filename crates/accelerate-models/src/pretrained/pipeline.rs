//! A model from a folder, of which each rank reads its own stage.

use std::path::Path;

use accelerate::Accelerator;
use accelerate::checkpoint::Weights;
use accelerate::nn::{Factory, Init};
use accelerate::parallel::{PipelineOptions, Pipelined, PipelinedModel};

use super::checkpoint::names;
use super::{PretrainedConfig, PretrainedModel};
use crate::Result;

/// Builds the model that a folder describes, cuts it, and reads this rank's stage; nothing else gets
/// memory. On the device of the accelerator.
///
/// # Collective
/// Every rank calls this with the same folder and options.
///
/// # Errors
/// As [`PretrainedModel::from_folder`], [`Accelerator::prepare_pipeline`] and
/// [`PipelinedModel::load`].
pub fn pipeline_from_folder<M: PretrainedModel + Pipelined>(
    accelerator: &Accelerator,
    folder: impl AsRef<Path>,
    factory: &Factory,
    options: &PipelineOptions,
) -> Result<PipelinedModel<M>> {
    let config = M::Config::from_folder(&folder)?;
    config.check()?;
    let weights = Weights::open(folder).map_err(accelerate::Error::from)?;
    let config = M::fit_config(&config, &weights)?;
    let mut model = M::build(&config, &factory.on_meta().with_init(Init::Skip))?;
    model.tie_weights();
    let own = names(model.as_module());
    let mut pipeline = accelerator.prepare_pipeline(model, options)?;
    pipeline.load(&weights, &|name| M::CHECKPOINT.name_for(name, &own))?;
    Ok(pipeline)
}
