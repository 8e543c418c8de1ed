//! The flags of `accelerate estimate-memory`.

use std::{num::NonZeroU64, path::PathBuf};

use accelerate_plan::MixedPrecision;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    dtypes::LoadDtype,
    inference::{GenerationArgs, InferenceArgs},
    lora::LoraArgs,
    skeleton::Architecture,
    source::{Library, Wanted},
    training::Optimizer,
};

/// What was typed after `accelerate estimate-memory`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct EstimateArgs {
    /// A folder, a `config.json`, a safetensors file or index, or a name on the hub
    #[arg(value_name = "MODEL")]
    pub(crate) model_name: String,

    /// Library of the model, where its configuration does not say
    #[arg(long = "library_name", value_enum, value_name = "LIBRARY")]
    pub(crate) library_name: Option<Library>,

    /// Types to load the model in
    #[arg(
        long,
        value_enum,
        num_args = 1..,
        value_name = "DTYPE",
        default_values = ["float32", "float16", "int8", "int4"]
    )]
    pub(crate) dtypes: Vec<LoadDtype>,

    /// Accepted for the original's sake: code of a model is never run here
    #[arg(long = "trust_remote_code")]
    pub(crate) trust_remote_code: bool,

    /// Class to count: `base` as the original does, `config` for the one that `config.json` names
    #[arg(long, value_name = "CLASS", default_value = "base", value_parser = architecture)]
    pub(crate) architecture: Architecture,

    /// Print everything as JSON instead
    #[arg(long)]
    pub(crate) json: bool,

    /// Also show the memory for training on each process under each sharding plan
    #[arg(long, help_heading = "Training")]
    pub(crate) plans: bool,

    /// Also show the sharding plan of this config file, and what it takes on each process
    #[arg(long = "config_file", value_name = "PATH", help_heading = "Training")]
    pub(crate) config_file: Option<PathBuf>,

    /// Number of processes of all machines; implies `--plans` [default: 1]
    #[arg(long = "num_processes", value_name = "N", help_heading = "Training")]
    pub(crate) num_processes: Option<NonZeroU64>,

    /// Number of machines, for HYBRID_SHARD; implies `--plans` [default: 1]
    #[arg(long = "num_machines", value_name = "N", help_heading = "Training")]
    pub(crate) num_machines: Option<NonZeroU64>,

    /// Optimizer; implies `--plans` [default: adamw]
    #[arg(long, value_enum, value_name = "OPTIMIZER", help_heading = "Training")]
    pub(crate) optimizer: Option<Optimizer>,

    /// Precision to compute in; implies `--plans` [default: with and without]
    #[arg(
        long = "mixed_precision",
        value_name = "PRECISION",
        value_parser = precision(),
        help_heading = "Training"
    )]
    pub(crate) mixed_precision: Option<MixedPrecision>,

    #[command(flatten)]
    pub(crate) lora: LoraArgs,

    #[command(flatten)]
    pub(crate) inference: InferenceArgs,

    #[command(flatten)]
    pub(crate) generation: GenerationArgs,
}

impl EstimateArgs {
    /// Whether the memory for training is asked for.
    pub(crate) fn wants_plans(&self) -> bool {
        self.plans
            || self.num_processes.is_some()
            || self.num_machines.is_some()
            || self.optimizer.is_some()
            || self.mixed_precision.is_some()
            || self.lora.lora_rank.is_some()
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            library: self.library_name,
            architecture: self.architecture.clone(),
            trust_remote_code: self.trust_remote_code,
        }
    }
}

pub(crate) fn architecture(text: &str) -> Result<Architecture, String> {
    match text {
        "base" => Ok(Architecture::Base),
        "config" => Ok(Architecture::Config),
        "" => Err("expected `base`, `config` or the name of a class".to_owned()),
        class => Ok(Architecture::Class(class.to_owned())),
    }
}

pub(crate) fn precision() -> impl TypedValueParser<Value = MixedPrecision> {
    PossibleValuesParser::new(MixedPrecision::ALL.map(MixedPrecision::name))
        .try_map(|name| name.parse::<MixedPrecision>())
}

const AFTER_HELP: &str = "\
Where the numbers come from:
  config.json   The model is built from it without tensors, as transformers or timm would. Known are
                the usual families of models (an unknown one is told with the list of known ones).
                Tied weights count each time, as the original counts them.
  safetensors   Sizes are read from the headers of the files, exact to the byte, for any model. Where
                there is no known `config.json`, these fill the first table: `stored` is the model as
                it lies on disk, and quantised tensors and their scales keep their size in each row.
                A layer is then a repeated block such as `model.layers.0` (a name up to its first
                number) or a module outside of such blocks.
  the hub       A name is looked up in the cache that Python uses (HF_HUB_CACHE, HF_HOME). The hub
                itself is asked only if this program was built with the feature `hub`.

The largest layer has to fit on one device when a model is spread over several.

Training (`--plans`) counts weights, gradients and optimizer in float32, and the copies that are
needed to compute: in lower precision with `--mixed_precision`, gathered from other processes where
weights are sharded (all that is in no repeated block, and two blocks).

Adapters (`--lora_rank`) are trained in float32 beside frozen weights: for each module that is meant
two weights of that rank. Frozen weights have no gradients and no optimizer state; in less than 16
bits they are whole on every process.

Inference: `--sequence_length` counts the cache of keys and values, in float32 beside weights of that
type and in 16 bits beside others. `--max_memory` places blocks on devices in order: accelerators by
their index (or `mps`), `cpu`, and what is left on disk; a cache is where its block is computed.
Sizes have the units GB, MB, KB (powers of 1000) or GiB, MiB, KiB; a number alone are bytes.

JSON (`--json`), sizes in bytes:
  model, path, class, parameters    what was counted; class and path may be null
  tied_bytes   what tied weights would take in float32 if they were not tied
  dtypes[]     dtype, largest_layer_bytes, total_bytes, training_bytes (null: cannot be trained)
  largest_layers[]    name, class (null: only the names of tensors are known)
  stored       null, or files, tensors, total_bytes, largest_layer_bytes, largest_layers[],
               quantized, dtypes[] of dtype, tensors, elements, bytes
  training     null, or num_processes, num_machines, optimizer, trainable_parameters, fixed_bytes,
               plans[] of plan, mixed_precision, shards, weights_bytes, copies_bytes,
               gradients_bytes, optimizer_bytes, per_process_bytes;
               lora: null, or rank, target_modules, adapted_modules, trainable_parameters,
               frozen_parameters, base_dtype
  inference    null, or cache (null, or layers, key_value_heads, head_dim, cross_attention,
               batch_size, sequence_length), device_map, max_memory, dtypes[] of dtype,
               weights_bytes, cache_bytes, total_bytes, map (null, or device_map, main_device,
               places[], largest_offloaded, problem, warning, reasons[])
  configured   null, or config_file, plan[] (one line for each part), num_processes, num_machines,
               weights_bytes, copies_bytes, gradients_bytes, optimizer_bytes, per_process_bytes,
               device_bytes, cpu_bytes, disk_bytes
  notes[], not_counted[]    texts";
