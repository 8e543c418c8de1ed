//! `accelerate plan`: which ways of running and training a model fit given devices.
//!
//! [`devices`] says what there is, [`inference`] and [`training`] count each way, [`text`] shows it.

pub(crate) mod args;
mod devices;
mod inference;
mod text;
mod training;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use accelerate_plan::device_map::MaxMemory;
use serde::Serialize;

use self::{args::PlanArgs, devices::Devices, inference::InferenceWay, training::TrainingWay};
use super::{
    answer::{NOT_COUNTED, inventory},
    error::{EstimateError, Result},
    inference::{Cache, cache, weights_bytes},
    lora::Lora,
    shape::Shape,
    source,
};

/// The answer to `accelerate plan`. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    model: String,
    max_memory: MaxMemory,
    /// Whether the limits are those of this machine.
    detected: bool,
    num_processes: u64,
    num_machines: u64,
    dtype: &'static str,
    weights_bytes: u64,
    cache: Option<Cache>,
    cache_bytes: u64,
    inference: Vec<InferenceWay>,
    optimizer: &'static str,
    mixed_precision: &'static str,
    lora: Option<Lora>,
    training: Vec<TrainingWay>,
    /// The first way of each that fits.
    recommended: Recommended,
    not_counted: [&'static str; 4],
}

/// The first ways that fit, in order of what they cost in speed.
#[derive(Debug, Serialize)]
struct Recommended {
    inference: Option<inference::Way>,
    training: Option<training::Way>,
}

/// Prints which ways fit.
///
/// # Errors
/// Those of [`EstimateError`].
pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let plan = plan(args)?;
    let text = if args.json {
        let json = serde_json::to_string_pretty(&plan);
        json.map_err(|error| EstimateError::Output(error.into()))? + "\n"
    } else {
        text::text(&plan, args.explain)
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever read the answer has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written
            .map(|()| ExitCode::SUCCESS)
            .map_err(EstimateError::Output),
    }
}

fn plan(args: &PlanArgs) -> Result<Plan> {
    let model = source::find(&args.model_name, &args.wanted())?;
    let devices = Devices::of(args)?;
    let shape = Shape::of(&model);
    let cache = cache(&args.generation, &model, &args.model_name)?;
    let cache_bytes = cache.map_or(0, |cache| cache.bytes(args.dtype));
    let ways = inference::ways(&shape, args.dtype, cache_bytes, &devices)?;
    let (inventory, lora) = args.lora.apply(inventory(&model), model.config.as_ref())?;
    let trained = training::ways(&inventory, args.optimizer, args.mixed_precision, &devices);
    Ok(Plan {
        model: args.model_name.clone(),
        num_processes: devices.num_processes,
        num_machines: devices.num_machines,
        dtype: args.dtype.name(),
        weights_bytes: weights_bytes(&shape, args.dtype),
        cache,
        cache_bytes,
        optimizer: args.optimizer.name(),
        mixed_precision: args.mixed_precision.name(),
        lora,
        recommended: Recommended {
            inference: ways.iter().find(|way| way.fits).map(|way| way.way),
            training: trained.iter().find(|way| way.fits).map(|way| way.way),
        },
        inference: ways,
        training: trained,
        max_memory: devices.limits,
        detected: devices.detected,
        not_counted: NOT_COUNTED,
    })
}
