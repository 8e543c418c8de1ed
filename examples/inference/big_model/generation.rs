//! The job itself.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Instant;

use accelerate::big_model::{DispatchOptions, LoadAndDispatchOptions, LoadedAndDispatched};
use accelerate::checkpoint::{Weights, kind_of};
use accelerate::nn::Factory;
use accelerate_models::generation::{
    GenerateOptions, GenerationConfig, GenerativeModel as _, Prompt, generate,
};
use accelerate_models::{AutoModelForCausalLM, TextTokenizer};
use tch::{Device, Kind, Tensor};

use crate::arguments::Arguments;
use crate::measurement::{Measurement, MemoryWatch};

type BoxError = Box<dyn std::error::Error>;

/// Loads, generates, and tells what it took since `start`.
pub(crate) fn run(arguments: &Arguments, start: Instant) -> Result<(), BoxError> {
    start_log();
    let watch = MemoryWatch::start()?;
    let loading = Instant::now();
    let (model, loaded) = load(arguments)?;
    let load_seconds = loading.elapsed().as_secs_f64();
    if arguments.explain
        && let Some(inferred) = &loaded.inferred
    {
        tell(&inferred.explanation)?;
    }
    let tokenizer = tokenizer(&arguments.model)?;
    let mut config = GenerationConfig::from_folder(&arguments.model)?;
    config.max_new_tokens = Some(i64::from(arguments.max_new_tokens));
    config.do_sample = false;
    config.num_beams = 1;
    let ids = prompt_ids(arguments, tokenizer.as_ref(), &model)?;
    let prompt = Prompt::new(&Tensor::from_slice(&ids).f_view([1, -1])?);

    let mut times = Vec::new();
    let mut note = |_token: i64| -> accelerate::Result<()> {
        times.push(start.elapsed().as_secs_f64());
        Ok(())
    };
    let options = GenerateOptions {
        streamer: Some(&mut note),
        ..GenerateOptions::default()
    };
    let made = generate(&model, &prompt, &config, options)?;
    let tokens = Vec::<Vec<i64>>::try_from(made.new_tokens()?)?.concat();
    let measurement = Measurement {
        load_seconds,
        first_token_seconds: times.first().copied().unwrap_or_default(),
        tokens_per_second: pace(&times),
        peak_private_bytes: watch.peak(),
        tokens,
    };
    report(arguments, &loaded, &measurement, tokenizer.as_ref())
}

fn load(arguments: &Arguments) -> Result<(AutoModelForCausalLM, LoadedAndDispatched), BoxError> {
    let mut dispatch = DispatchOptions::default().with_prefetch(arguments.prefetch());
    if let Some(folder) = &arguments.offload_folder {
        dispatch = dispatch.with_offload_folder(folder);
    }
    let mut options = LoadAndDispatchOptions::default()
        .with_device_map(arguments.map_choice()?)
        .with_dispatch(dispatch);
    if let Some(limits) = &arguments.max_memory {
        options = options.with_max_memory(limits.clone());
    }
    let kind = match arguments.dtype {
        Some(dtype) => dtype.kind(),
        None => kind_in_files(&arguments.model)?,
    };
    // The model's own type is what its weights become.
    let factory = Factory::new(Device::Cpu, kind);
    let model = AutoModelForCausalLM::dispatched_from_folder(&arguments.model, &factory, &options);
    Ok(model?)
}

/// The type of the largest weight.
fn kind_in_files(folder: &Path) -> Result<Kind, BoxError> {
    let weights = Weights::open(folder)?;
    let largest = weights.tensors().max_by_key(|tensor| tensor.byte_len());
    let kind = largest.and_then(|tensor| kind_of(tensor.dtype()));
    Ok(kind.unwrap_or(Kind::Float))
}

fn tokenizer(folder: &Path) -> Result<Option<TextTokenizer>, BoxError> {
    if !folder.join("tokenizer.json").exists() {
        return Ok(None);
    }
    Ok(Some(TextTokenizer::from_folder(folder)?))
}

fn prompt_ids(
    arguments: &Arguments,
    tokenizer: Option<&TextTokenizer>,
    model: &AutoModelForCausalLM,
) -> Result<Vec<i64>, BoxError> {
    let text = &arguments.prompt;
    let Some(tokenizer) = tokenizer else {
        let ids = text.split([',', ' ']).filter(|id| !id.is_empty());
        let ids = ids.map(str::parse).collect::<Result<Vec<i64>, _>>();
        return ids.map_err(|_| {
            let needed =
                "the folder has no tokenizer, so a prompt is ids of tokens such as `1,2,3`";
            format!("{needed}; found `{text}`").into()
        });
    };
    let new = i64::from(arguments.max_new_tokens);
    let limit = model.generation_profile().max_positions;
    let room = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit - new).unwrap_or(0).max(1)
    });
    Ok(tokenizer.encode(text, room)?.ids)
}

/// Tokens after the first, each second.
fn pace(times: &[f64]) -> Option<f64> {
    let (first, last) = (times.first()?, times.last()?);
    (last > first).then(|| (times.len() - 1) as f64 / (last - first))
}

fn report(
    arguments: &Arguments,
    loaded: &LoadedAndDispatched,
    measurement: &Measurement,
    tokenizer: Option<&TextTokenizer>,
) -> Result<(), BoxError> {
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(measurement)?)?;
        return Ok(());
    }
    let text = match tokenizer {
        Some(tokenizer) => tokenizer.decode(&measurement.tokens, true)?,
        None => format!(" -> {:?}", measurement.tokens),
    };
    writeln!(out, "{}{text}", arguments.prompt)?;
    writeln!(out, "map: {}", serde_json::to_string(&loaded.device_map)?)?;
    write!(
        out,
        "loaded in {:.2} s, first token after {:.2} s",
        measurement.load_seconds, measurement.first_token_seconds
    )?;
    if let Some(pace) = measurement.tokens_per_second {
        write!(out, ", then {pace:.2} tokens/s")?;
    }
    if let Some(bytes) = measurement.peak_private_bytes {
        write!(out, "; {:.0} MB of memory of its own", bytes as f64 / 1e6)?;
    }
    writeln!(out)?;
    Ok(())
}

fn tell(explanation: &impl std::fmt::Display) -> Result<(), BoxError> {
    writeln!(io::stderr().lock(), "{explanation}")?;
    Ok(())
}

/// Warnings of the library go to standard error.
fn start_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
