//! The flags of `accelerate plan`.

use std::num::NonZeroU64;

use accelerate_plan::{MixedPrecision, device_map::MaxMemory};
use clap::Args;

use crate::estimate::{
    args::{architecture, precision},
    dtypes::LoadDtype,
    inference::{GenerationArgs, limits},
    lora::LoraArgs,
    skeleton::Architecture,
    source::{Library, Wanted},
    training::Optimizer,
};

/// What was typed after `accelerate plan`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct PlanArgs {
    /// A folder, a `config.json`, a safetensors file or index, or a name on the hub
    #[arg(value_name = "MODEL")]
    pub(crate) model_name: String,

    /// Library of the model, where its configuration does not say
    #[arg(long = "library_name", value_enum, value_name = "LIBRARY")]
    pub(crate) library_name: Option<Library>,

    /// Class to count: `base` as the original does, `config` for the one that `config.json` names
    #[arg(long, value_name = "CLASS", default_value = "config", value_parser = architecture)]
    pub(crate) architecture: Architecture,

    /// Memory of each device of a machine and of its CPU, such as `0=80GB,1=80GB,cpu=200GB` or the
    /// same as JSON [default: what this machine has]
    #[arg(long = "max_memory", value_name = "LIMITS", value_parser = limits)]
    pub(crate) max_memory: Option<MaxMemory>,

    /// Number of processes of all machines [default: one for each accelerator]
    #[arg(long = "num_processes", value_name = "N")]
    pub(crate) num_processes: Option<NonZeroU64>,

    /// Number of machines, all alike
    #[arg(long = "num_machines", value_name = "N", default_value = "1")]
    pub(crate) num_machines: NonZeroU64,

    /// Also tell why each part of a device map is where it is
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print everything as JSON instead
    #[arg(long)]
    pub(crate) json: bool,

    /// Type to load the model in for inference
    #[arg(
        long,
        value_enum,
        value_name = "DTYPE",
        default_value = "bfloat16",
        help_heading = "Inference"
    )]
    pub(crate) dtype: LoadDtype,

    #[command(flatten)]
    pub(crate) generation: GenerationArgs,

    /// Optimizer
    #[arg(
        long,
        value_enum,
        value_name = "OPTIMIZER",
        default_value = "adamw",
        help_heading = "Training"
    )]
    pub(crate) optimizer: Optimizer,

    /// Precision to compute in
    #[arg(
        long = "mixed_precision",
        value_name = "PRECISION",
        value_parser = precision(),
        default_value = "bf16",
        help_heading = "Training"
    )]
    pub(crate) mixed_precision: MixedPrecision,

    #[command(flatten)]
    pub(crate) lora: LoraArgs,
}

impl PlanArgs {
    /// What is to be found of the model. Code of a model is never run.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            library: self.library_name,
            architecture: self.architecture.clone(),
            trust_remote_code: false,
        }
    }
}

const AFTER_HELP: &str = "\
Ways of running a model:
  plain        every process has a whole copy on its device
  pipelined    blocks are spread over the devices of a machine
  cpu_offload  what does not fit the devices waits in CPU memory
  disk_offload what does not fit there either waits on disk

Ways of training it:
  plain        every process has everything
  stage_1      the optimizer's state in shards over all processes (ZeRO-1)
  stage_2      gradients too (ZeRO-2, SHARD_GRAD_OP)
  stage_3      weights too (ZeRO-3, FULL_SHARD)
  stage_3_cpu  the same, and all shards wait in CPU memory
  stage_3_disk the same, and all shards wait on disk

The first way that fits is the fastest one as a rule. A way fits if what is counted stays within the
limits; activations and the context of a device come on top (`--max_memory` with less leaves room).

JSON (`--json`), sizes in bytes:
  model, max_memory, detected, num_processes, num_machines, dtype, weights_bytes, cache, cache_bytes
  inference[]  way, fits, device_bytes (largest of a device), cpu_bytes, disk_bytes (of a machine),
               problem, map (as in `estimate-memory`)
  optimizer, mixed_precision, lora
  training[]   way, fits, shards, device_bytes (of a process), cpu_bytes, disk_bytes (of a machine),
               weights_bytes, copies_bytes, gradients_bytes, optimizer_bytes, problem
  recommended  inference, training (null: no way fits)
  not_counted[]";
