//! Fully sharded data parallelism, in its two versions.

use super::job::{Job, Machine};
use crate::config_command::{
    ask::{Ask, Question, question},
    error::{ConfigCommandError, Result},
    record::Section,
};

/// The version of FSDP; the second has fewer settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

const VERSIONS: [&str; 2] = ["FSDP1", "FSDP2"];
const SHARDING: [&str; 5] = [
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "HYBRID_SHARD_ZERO2",
];
const BY_LAYER: &str = "TRANSFORMER_BASED_WRAP";
const BY_SIZE: &str = "SIZE_BASED_WRAP";
const WRAPPING: [&str; 3] = [BY_LAYER, BY_SIZE, "NO_WRAP"];
const PREFETCH: [&str; 3] = ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"];
const STATE_DICTS_OF_ONE: [&str; 3] = ["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"];
const STATE_DICTS_OF_TWO: [&str; 2] = ["SHARDED_STATE_DICT", "FULL_STATE_DICT"];

/// Returns the version, or `None` without FSDP.
pub(super) fn interview(
    ask: &mut dyn Ask,
    job: &Job,
    record: &mut Section,
) -> Result<Option<Version>> {
    if !job.machine.has_accelerators() {
        return Ok(None);
    }
    let q = question(
        "Use fully sharded data parallelism (FSDP)?",
        "every process holds a part of parameters, gradients and optimizer states",
    );
    if !ask.yes_no(q, false)? {
        return Ok(None);
    }
    if job.machine == Machine::MultiNeuron {
        return Err(ConfigCommandError::NotOnNeuron { strategy: "FSDP" });
    }
    let mut section = Section::default();
    let version = sharding(ask, &mut section)?;
    wrapping(ask, &mut section)?;
    match version {
        Version::One => rest_of_one(ask, &mut section)?,
        Version::Two => rest_of_two(ask, &mut section)?,
    }
    let q = question(
        "Recompute activations in the backward pass?",
        "needs less memory and more time",
    );
    flag(ask, &mut section, "fsdp_activation_checkpointing", q, false)?;
    record.set_section("fsdp_config", section);
    Ok(Some(version))
}

fn sharding(ask: &mut dyn Ask, section: &mut Section) -> Result<Version> {
    let q = question(
        "Which version of FSDP?",
        "the second shards every parameter by itself and is the one to start with",
    );
    let version = match ask.menu(q, &VERSIONS, 1)? {
        0 => Version::One,
        _ => Version::Two,
    };
    match version {
        Version::One => {
            section.set("fsdp_version", 1_i64);
            let q = question(
                "What is sharded?",
                "FULL_SHARD all of it, SHARD_GRAD_OP not the parameters, HYBRID_* per machine",
            );
            section.set("fsdp_reshard_after_forward", ask.choice(q, &SHARDING, 0)?);
        }
        Version::Two => {
            section.set("fsdp_version", 2_i64);
            let q = question(
                "Shard parameters again after the forward pass?",
                "`no` keeps them for the backward pass: faster, more memory",
            );
            flag(ask, section, "fsdp_reshard_after_forward", q, true)?;
        }
    }
    let q = question(
        "Keep parameters and gradients in CPU memory?",
        "they come to the device only while they are used",
    );
    flag(ask, section, "fsdp_offload_params", q, false)?;
    Ok(version)
}

fn wrapping(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "How is the model cut into units?",
        "by the classes of its layers, by number of parameters, or not at all",
    );
    let policy = ask.choice(q, &WRAPPING, 0)?;
    section.set("fsdp_auto_wrap_policy", policy);
    if policy == BY_LAYER {
        let q = question(
            "Take the layers from the model's `_no_split_modules`?",
            "models of Transformers have such a list",
        );
        if !ask.yes_no(q, false)? {
            let q = question(
                "Which classes are wrapped?",
                "comma-separated, case-sensitive, such as `BertLayer` or `T5Block`",
            );
            section.set("fsdp_transformer_layer_cls_to_wrap", ask.text(q, None)?);
        }
    } else if policy == BY_SIZE {
        let q = question(
            "How many parameters make a unit?",
            "modules with at least so many are wrapped",
        );
        let number = ask.whole(q, 1..=i64::MAX, Some(100_000_000))?;
        section.set("fsdp_min_num_params", number);
    }
    Ok(())
}

fn rest_of_one(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "When are the next parameters fetched in the backward pass?",
        "BACKWARD_PRE overlaps most and needs most memory",
    );
    section.set("fsdp_backward_prefetch", ask.choice(q, &PREFETCH, 0)?);
    state_dict(ask, section, &STATE_DICTS_OF_ONE)?;
    let q = question(
        "Fetch the next parameters early in the forward pass?",
        "for models whose layers always run in the same order",
    );
    flag(ask, section, "fsdp_forward_prefetch", q, false)?;
    let q = question(
        "Keep the original parameters (`use_orig_params`)?",
        "allows settings per parameter, such as frozen ones",
    );
    flag(ask, section, "fsdp_use_orig_params", q, true)?;
    if efficient_loading(ask, section)? {
        // Only rank 0 has the weights then, so it has to send them.
        section.set("fsdp_sync_module_states", true);
    } else {
        let q = question(
            "Should rank 0 send its parameters to all ranks at the start?",
            "`no` only if every rank loads the same weights",
        );
        flag(ask, section, "fsdp_sync_module_states", q, true)?;
    }
    Ok(())
}

fn rest_of_two(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    state_dict(ask, section, &STATE_DICTS_OF_TWO)?;
    efficient_loading(ask, section)?;
    Ok(())
}

fn state_dict(ask: &mut dyn Ask, section: &mut Section, types: &[&str]) -> Result<()> {
    let q = question(
        "In which form are checkpoints written?",
        "sharded ones are written by all ranks, a full one by rank 0",
    );
    section.set("fsdp_state_dict_type", ask.choice(q, types, 0)?);
    Ok(())
}

fn efficient_loading(ask: &mut dyn Ask, section: &mut Section) -> Result<bool> {
    let q = question(
        "Load weights on rank 0 only (RAM-efficient loading)?",
        "works with models of Transformers",
    );
    flag(ask, section, "fsdp_cpu_ram_efficient_loading", q, true)
}

fn flag(
    ask: &mut dyn Ask,
    section: &mut Section,
    key: &str,
    question: Question<'_>,
    default: bool,
) -> Result<bool> {
    let answer = ask.yes_no(question, default)?;
    section.set(key, answer);
    Ok(answer)
}
