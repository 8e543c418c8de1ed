//! The keys of DeepSpeed's config.

use std::path::Path;

use super::document::{dotted, flag, number, whole};
use crate::config::{ConfigError, Node, NodeKind, UnknownKey, Value};

/// What may stand behind a key. A scalar may be `auto` too.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Flag,
    Whole,
    Number,
    Text,
    OneOf(&'static [&'static str]),
    Map(&'static [Known]),
    /// DeepSpeed's own business: parameters of optimizers and schedules are checked by their type,
    /// and what has no effect here is not checked at all.
    Anything,
    /// A key of older versions, and what is said for it today.
    Gone(&'static str),
}

#[derive(Debug, Clone, Copy)]
struct Known {
    name: &'static str,
    shape: Shape,
    /// Whether nothing here reads it.
    is_unread: bool,
}

const fn read(name: &'static str, shape: Shape) -> Known {
    Known {
        name,
        shape,
        is_unread: false,
    }
}

/// A part of DeepSpeed that is not rebuilt here.
const fn unread(name: &'static str) -> Known {
    Known {
        name,
        shape: Shape::Anything,
        is_unread: true,
    }
}

/// A key that is known, and changes nothing here.
const fn idle(name: &'static str, shape: Shape) -> Known {
    Known {
        name,
        shape,
        is_unread: true,
    }
}

use Shape::{Anything, Flag, Gone, Map, Number, OneOf, Text, Whole};

const FLOATS: &[&str] = &["fp32", "fp16", "bf16", "bfp16"];
const DEVICES: &[&str] = &["none", "cpu", "nvme"];

const CONFIG: &[Known] = &[
    read("train_batch_size", Whole),
    read("train_micro_batch_size_per_gpu", Whole),
    read("gradient_accumulation_steps", Whole),
    read("gradient_clipping", Number),
    read("zero_optimization", Map(ZERO)),
    read("optimizer", Map(NAMED)),
    read("scheduler", Map(NAMED)),
    read("fp16", Map(FP16)),
    read("bf16", Map(BF16)),
    read("communication_data_type", OneOf(FLOATS)),
    read("prescale_gradients", Flag),
    read("gradient_predivide_factor", Number),
    read("data_types", Map(DATA_TYPES)),
    read("aio", Map(AIO)),
    read("zero_allow_untested_optimizer", Flag),
    read("zero_force_ds_cpu_optimizer", Flag),
    read("checkpoint", Map(CHECKPOINT)),
    read("steps_per_print", Number),
    idle("wall_clock_breakdown", Flag),
    idle("memory_breakdown", Flag),
    idle("dump_state", Flag),
    idle("sparse_gradients", Flag),
    read("disable_allgather", Flag),
    idle("seq_parallel_communication_data_type", OneOf(FLOATS)),
    idle("dataloader_drop_last", Flag),
    read("msamp", Map(MSAMP)),
    unread("activation_checkpointing"),
    unread("amp"),
    unread("autotuning"),
    unread("comet"),
    unread("comms_logger"),
    unread("compile"),
    unread("compression_training"),
    unread("csv_monitor"),
    unread("curriculum_learning"),
    unread("data_efficiency"),
    unread("eigenvalue"),
    unread("elasticity"),
    unread("flops_profiler"),
    unread("graph_harvesting"),
    unread("hybrid_engine"),
    unread("monitor_config"),
    unread("nebula"),
    unread("pipeline"),
    unread("progressive_layer_drop"),
    unread("quantize_training"),
    unread("sequence_parallel_size"),
    unread("sparse_attention"),
    unread("tensor_parallel"),
    unread("tensorboard"),
    unread("timers"),
    unread("torch_autocast"),
    unread("use_data_before_expert_parallelism"),
    unread("vocabulary_size"),
    unread("wandb"),
    unread("weight_quantization"),
];

const ZERO: &[Known] = &[
    read("stage", OneOf(&["0", "1", "2", "3"])),
    read("contiguous_gradients", Flag),
    read("reduce_scatter", Flag),
    read("reduce_bucket_size", Whole),
    read("use_multi_rank_bucket_allreduce", Flag),
    read("allgather_partitions", Flag),
    read("allgather_bucket_size", Whole),
    read("overlap_comm", Flag),
    read("load_from_fp32_weights", Flag),
    idle("elastic_checkpoint", Flag),
    read("offload_param", Map(OFFLOAD_PARAM)),
    read("offload_optimizer", Map(OFFLOAD_OPTIMIZER)),
    read("sub_group_size", Whole),
    read("stage3_prefetch_bucket_size", Whole),
    read("stage3_param_persistence_threshold", Whole),
    read("stage3_model_persistence_threshold", Whole),
    read("stage3_max_live_parameters", Whole),
    read("stage3_max_reuse_distance", Whole),
    read("stage3_gather_16bit_weights_on_model_save", Flag),
    read("stage3_module_granularity_threshold", Whole),
    read("stage3_use_all_reduce_for_fetch_params", Flag),
    read("ignore_unused_parameters", Flag),
    read("legacy_stage1", Flag),
    read("round_robin_gradients", Flag),
    read("zero_hpz_partition_size", Whole),
    read("zero_quantized_weights", Flag),
    idle("zero_quantized_nontrainable_weights", Flag),
    read("zero_quantized_gradients", Flag),
    unread("zeropp_loco_param"),
    read("mics_shard_size", Number),
    read("mics_hierarchical_params_gather", Flag),
    read("memory_efficient_linear", Flag),
    read("pipeline_loading_checkpoint", Flag),
    read("override_module_apply", Flag),
    unread("log_trace_cache_warnings"),
    unread("zenflow"),
    read("cpu_offload", Gone("`offload_optimizer`")),
    read("cpu_offload_param", Gone("`offload_param`")),
    read(
        "cpu_offload_use_pin_memory",
        Gone("`pin_memory` in `offload_optimizer` or `offload_param`"),
    ),
    read(
        "stage3_gather_fp16_weights_on_model_save",
        Gone("`stage3_gather_16bit_weights_on_model_save`"),
    ),
];

const OFFLOAD_PARAM: &[Known] = &[
    read("device", OneOf(DEVICES)),
    read("nvme_path", Text),
    read("buffer_count", Whole),
    read("buffer_size", Whole),
    read("max_in_cpu", Whole),
    read("pin_memory", Flag),
];

const OFFLOAD_OPTIMIZER: &[Known] = &[
    read("device", OneOf(DEVICES)),
    read("nvme_path", Text),
    read("buffer_count", Whole),
    read("pin_memory", Flag),
    read("pipeline", Flag),
    read("pipeline_read", Flag),
    read("pipeline_write", Flag),
    read("fast_init", Flag),
    read("ratio", Number),
    unread("super_offload"),
    unread("cpuadam_cores_perc"),
];

const NAMED: &[Known] = &[
    read("type", Text),
    read("params", Anything),
    read("legacy_fusion", Flag),
];

const FP16: &[Known] = &[
    read("enabled", Flag),
    read("auto_cast", Flag),
    read("loss_scale", Number),
    read("initial_scale_power", Whole),
    read("loss_scale_window", Whole),
    read("hysteresis", Whole),
    read("consecutive_hysteresis", Flag),
    read("min_loss_scale", Number),
    idle("fp16_master_weights_and_grads", Flag),
];

const BF16: &[Known] = &[
    read("enabled", Flag),
    read("immediate_grad_update", Flag),
    idle("check_grad_overflow", Flag),
    unread("bf16_master_weights_and_grads"),
    unread("bf16_optimizer_states"),
];

const DATA_TYPES: &[Known] = &[idle("grad_accum_dtype", OneOf(FLOATS))];

const AIO: &[Known] = &[
    read("block_size", Whole),
    read("queue_depth", Whole),
    read("thread_count", Whole),
    read("intra_op_parallelism", Whole),
    read("single_submit", Flag),
    read("overlap_events", Flag),
    read("use_gds", Flag),
];

const CHECKPOINT: &[Known] = &[
    read("tag_validation", OneOf(&["Ignore", "Warn", "Fail"])),
    idle("load_universal", Flag),
    idle("use_node_local_storage", Flag),
    unread("parallel_write"),
    unread("writer"),
];

const MSAMP: &[Known] = &[
    read("enabled", Flag),
    read("opt_level", OneOf(&["O1", "O2"])),
];

/// Checks every key and value of a config, and tells what nothing here reads, one sentence each.
///
/// # Errors
/// [`ConfigError::UnknownKeys`] with all unknown keys and the known ones most like them, or
/// [`ConfigError::WrongValue`] for the first value that may not stand where it stands.
pub(super) fn check(path: &Path, root: &Node) -> Result<Vec<String>, ConfigError> {
    let mut check = Check {
        path,
        unknown: Vec::new(),
        unread: Vec::new(),
    };
    check.map("", root, CONFIG)?;
    match check.unknown.is_empty() {
        true => Ok(check.unread),
        false => Err(ConfigError::unknown_keys(path, check.unknown)),
    }
}

struct Check<'a> {
    path: &'a Path,
    unknown: Vec<UnknownKey>,
    unread: Vec<String>,
}

impl Check<'_> {
    fn map(&mut self, map: &str, node: &Node, known: &[Known]) -> Result<(), ConfigError> {
        let entries = match &node.kind {
            NodeKind::Map(entries) => entries,
            NodeKind::Null => return Ok(()),
            _ => return Err(self.wrong(map, node, "keys with values", &[])),
        };
        for (key, value) in entries {
            let name = key.text().unwrap_or_default();
            let full = dotted(map, &name);
            match known.iter().find(|known| known.name == name) {
                Some(known) => self.value(&full, value, known)?,
                None => {
                    let names = known.iter().map(|known| known.name);
                    let mut unknown = UnknownKey::new(&*name, key.line, names);
                    unknown.key = full;
                    self.unknown.push(unknown);
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, key: &str, node: &Node, known: &Known) -> Result<(), ConfigError> {
        if known.is_unread && is_wanted(node) {
            self.unread.push(format!("`{key}` has no effect here"));
        }
        let value = node.to_value();
        if value == Value::Null || super::document::is_auto(&value) {
            return Ok(());
        }
        let (fits, expected, choices): (bool, &str, &[&str]) = match known.shape {
            Anything => return Ok(()),
            Map(inner) => return self.map(key, node, inner),
            Flag => (flag(&value).is_some(), "`true`, `false` or `auto`", &[]),
            Whole => (
                whole(&value).is_some(),
                "a whole number, at least 0, or `auto`",
                &[],
            ),
            Number => (number(&value).is_some(), "a number or `auto`", &[]),
            Text => (
                matches!(value, Value::Text(_)),
                "a text between quotes",
                &[],
            ),
            OneOf(choices) => {
                let text = node.text().unwrap_or_default();
                let fits = choices.iter().any(|choice| *choice == text);
                return match fits {
                    true => Ok(()),
                    false => Err(self.wrong(key, node, &one_of(choices), choices)),
                };
            }
            Gone(today) => {
                let expected = format!("{today}, which replaced this key");
                return Err(self.wrong(key, node, &expected, &[]));
            }
        };
        match fits {
            true => Ok(()),
            false => Err(self.wrong(key, node, expected, choices)),
        }
    }

    fn wrong(&self, key: &str, node: &Node, expected: &str, choices: &[&str]) -> ConfigError {
        ConfigError::wrong_value(self.path, key, node, expected, choices.iter().copied())
    }
}

fn one_of(choices: &[&str]) -> String {
    let choices: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
    format!("one of {}, or `auto`", choices.join(", "))
}

/// Whether a part is asked for: it is there, and does not say that it is off.
fn is_wanted(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Null | NodeKind::Bool(false) => false,
        NodeKind::Map(entries) => !entries.iter().any(|(key, value)| {
            key.text().is_some_and(|key| key == "enabled") && value.kind == NodeKind::Bool(false)
        }),
        _ => true,
    }
}
