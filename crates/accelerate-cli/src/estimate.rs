//! `accelerate estimate-memory`: how much memory a model takes, without loading it.
//!
//! [`source`] finds what the user named, offline first. A `config.json` becomes a [`skeleton`], a
//! tree of modules without tensors; safetensors files are counted by their headers ([`stored`]).
//! Arithmetic is in small pure modules: [`dtypes`], [`largest`], [`training`], [`lora`], [`kv_cache`],
//! [`mapping`] and [`table`]. [`answer`] puts it together, [`text`] shows it.
//!
//! # Source
//! `accelerate estimate-memory`. Differs: no Python and no tensor library are started, weights on
//! disk are counted as they are, and training is told by sharding plan.

mod answer;
pub(crate) mod args;
mod config;
mod configured;
mod dtypes;
pub(crate) mod error;
mod hub;
mod inference;
mod kv_cache;
mod largest;
mod lora;
mod mapping;
mod module;
pub(crate) mod plan;
mod shape;
mod skeleton;
mod source;
mod stored;
mod table;
mod text;
mod training;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use self::{
    args::EstimateArgs,
    error::{EstimateError, Result},
};

/// Prints what `args` ask for to stdout.
///
/// # Errors
/// Those of [`EstimateError`].
pub(crate) fn run(args: &EstimateArgs) -> Result<ExitCode> {
    let model = source::find(&args.model_name, &args.wanted())?;
    let answer = answer::answer(args, model)?;
    let text = if args.json {
        let json = serde_json::to_string_pretty(&answer);
        json.map_err(|error| EstimateError::Output(error.into()))? + "\n"
    } else {
        text::text(&answer, args.inference.explain)
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever read the answer has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        written => written
            .map(|()| ExitCode::SUCCESS)
            .map_err(EstimateError::Output),
    }
}
