//! Memory for running a model: weights, the cache of keys and values, and where both are.

use std::num::NonZeroU64;

use accelerate_plan::device_map::{MaxMemory, MemorySize, Mode, compute_module_sizes};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{
    dtypes::LoadDtype,
    error::{EstimateError, Result},
    kv_cache::KvCache,
    mapping::{self, Mapped},
    shape::Shape,
    source::Model,
};

/// How much is written at once.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Inference")]
pub(crate) struct GenerationArgs {
    /// Samples that are generated at once [default: 1]
    #[arg(long = "batch_size", value_name = "N", requires = "sequence_length")]
    pub(crate) batch_size: Option<NonZeroU64>,

    /// Tokens of each sample, those of the prompt included: also count the cache of keys and values
    #[arg(long = "sequence_length", value_name = "N")]
    pub(crate) sequence_length: Option<NonZeroU64>,
}

/// Where a model is to run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Inference")]
pub(crate) struct InferenceArgs {
    /// Also show which part of the model is where on devices with these limits, such as
    /// `0=10GB,1=10GB,cpu=30GB` or the same as JSON
    #[arg(long = "max_memory", value_name = "LIMITS", value_parser = limits)]
    pub(crate) max_memory: Option<MaxMemory>,

    /// How devices are filled
    #[arg(
        long = "device_map",
        value_enum,
        value_name = "WAY",
        default_value = "auto",
        requires = "max_memory"
    )]
    pub(crate) device_map: MapWay,

    /// Also tell why each part is where it is
    #[arg(long, requires = "max_memory")]
    pub(crate) explain: bool,
}

/// A way of filling devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum MapWay {
    /// evenly, the same as `balanced`
    Auto,
    /// evenly
    Balanced,
    /// evenly, with as little as possible on the first one
    #[value(name = "balanced_low_0")]
    BalancedLow0,
    /// one after another, each up to its limit
    Sequential,
}

impl MapWay {
    fn mode(self) -> Mode {
        match self {
            Self::Auto => Mode::Auto,
            Self::Balanced => Mode::Balanced,
            Self::BalancedLow0 => Mode::BalancedLow0,
            Self::Sequential => Mode::Sequential,
        }
    }
}

/// Limits as they are typed. An error of `clap` shows one line, so the cause goes with it.
pub(crate) fn limits(text: &str) -> Result<MaxMemory, String> {
    text.parse::<MaxMemory>().map_err(|error| {
        let cause = std::error::Error::source(&error);
        cause.map_or(error.to_string(), |cause| format!("{error}: {cause}"))
    })
}

/// The memory for running a model. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Inference {
    pub(crate) cache: Option<Cache>,
    pub(crate) device_map: Option<&'static str>,
    pub(crate) max_memory: Option<MaxMemory>,
    pub(crate) dtypes: Vec<Running>,
}

/// The cache of keys and values that was asked for.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cache {
    #[serde(flatten)]
    pub(crate) shape: KvCache,
    pub(crate) batch_size: u64,
    pub(crate) sequence_length: u64,
}

impl Cache {
    /// Its bytes beside weights of a type.
    pub(crate) fn bytes(&self, dtype: LoadDtype) -> u64 {
        let Self {
            shape,
            batch_size,
            sequence_length,
        } = self;
        shape.bytes(*batch_size, *sequence_length, dtype.computed_bytes())
    }
}

/// A model in one type. Tied weights count once.
#[derive(Debug, Serialize)]
pub(crate) struct Running {
    pub(crate) dtype: &'static str,
    pub(crate) weights_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) map: Option<Mapped>,
}

/// The cache that `args` ask for.
///
/// # Errors
/// [`EstimateError::NoCacheConfig`] without a `config.json`, and those of [`KvCache::read`].
pub(crate) fn cache(args: &GenerationArgs, model: &Model, name: &str) -> Result<Option<Cache>> {
    let Some(sequence_length) = args.sequence_length else {
        return Ok(None);
    };
    let config = model
        .config
        .as_ref()
        .ok_or_else(|| EstimateError::NoCacheConfig {
            model: name.to_owned(),
        })?;
    Ok(Some(Cache {
        shape: KvCache::read(config)?,
        batch_size: args.batch_size.map_or(1, u64::from),
        sequence_length: sequence_length.get(),
    }))
}

/// Bytes of the weights of a model as they are loaded in a type.
pub(crate) fn weights_bytes(shape: &Shape, dtype: LoadDtype) -> u64 {
    let sizes = compute_module_sizes(&shape.root, Some(dtype.element()), &shape.kept);
    sizes.total().bytes()
}

/// Works out what running a model takes in each type; [`None`] if nothing about it was asked.
///
/// # Errors
/// Those of [`cache`] and of [`mapping::mapped`].
pub(crate) fn inference(
    args: &InferenceArgs,
    generation: &GenerationArgs,
    dtypes: &[LoadDtype],
    model: &Model,
    name: &str,
) -> Result<Option<Inference>> {
    let cache = cache(generation, model, name)?;
    if cache.is_none() && args.max_memory.is_none() {
        return Ok(None);
    }
    let shape = Shape::of(model);
    let mode = args.device_map.mode();
    let running = dtypes.iter().map(|&dtype| {
        let cache_bytes = cache.map_or(0, |cache| cache.bytes(dtype));
        let weights_bytes = weights_bytes(&shape, dtype);
        let map = args.max_memory.as_ref().map(|limits| {
            mapping::mapped(&mapping::Wanted {
                shape: &shape,
                dtype: Some(dtype.element()),
                cache_bytes,
                limits,
                mode,
                detected: false,
            })
        });
        Ok(Running {
            dtype: dtype.name(),
            weights_bytes,
            cache_bytes,
            total_bytes: weights_bytes.saturating_add(cache_bytes),
            map: map.transpose()?,
        })
    });
    Ok(Some(Inference {
        dtypes: running.collect::<Result<_>>()?,
        cache,
        device_map: args.max_memory.is_some().then(|| mode.name()),
        max_memory: args.max_memory.clone(),
    }))
}

impl Inference {
    /// The lines for a person.
    pub(crate) fn text(&self, explain: bool) -> String {
        let mut lines = Vec::new();
        let size = |bytes| MemorySize::from_bytes(bytes).to_string();
        if let Some(cache) = &self.cache {
            let KvCache {
                layers,
                key_value_heads,
                head_dim,
                ..
            } = cache.shape;
            lines.push(format!(
                "Keys and values of {} x {} tokens ({layers} layers, {key_value_heads} heads of \
                 {head_dim}):",
                cache.batch_size, cache.sequence_length
            ));
            lines.extend(self.dtypes.iter().map(|running| {
                format!(
                    "  {}: {} of weights and {} of keys and values, together {}",
                    running.dtype,
                    size(running.weights_bytes),
                    size(running.cache_bytes),
                    size(running.total_bytes)
                )
            }));
        }
        for running in &self.dtypes {
            if let Some(map) = &running.map {
                lines.push(format!("Device map in {}:", running.dtype));
                lines.extend(
                    map_lines(map, explain)
                        .into_iter()
                        .map(|line| format!("  {line}")),
                );
            }
        }
        lines.join("\n")
    }
}

/// A map, what each place holds, and what is wrong with it.
pub(crate) fn map_lines(map: &Mapped, explain: bool) -> Vec<String> {
    let size = |bytes| MemorySize::from_bytes(bytes).to_string();
    let mut lines = map.lines();
    for used in &map.places {
        let limit = used.limit_bytes.map(|limit| format!(" of {}", size(limit)));
        let cache = match used.cache_bytes {
            0 => String::new(),
            bytes => format!(" and {} of keys and values", size(bytes)),
        };
        lines.push(format!(
            "`{}` holds {} of weights{cache}{}",
            used.place,
            size(used.weights_bytes),
            limit.unwrap_or_default()
        ));
    }
    if let Some(largest) = &map.largest_offloaded {
        lines.push(format!(
            "the largest part that comes to `{}` to be computed is `{}` ({})",
            map.main_device,
            largest.name,
            size(largest.bytes)
        ));
    }
    let problem = map
        .problem
        .iter()
        .map(|problem| format!("does not run: {problem}"));
    lines.extend(problem);
    lines.extend(
        map.warning
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    if explain {
        lines.push("why:".to_owned());
        lines.extend(map.reasons.iter().map(|reason| format!("  {reason}")));
    }
    lines
}
