//! Megatron-LM: tensor and pipeline parallelism.

use super::job::{Job, Machine};
use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

/// Returns whether Megatron-LM is used.
pub(super) fn interview(ask: &mut dyn Ask, job: &Job, record: &mut Section) -> Result<bool> {
    if job.machine != Machine::MultiGpu {
        return Ok(false);
    }
    let q = question(
        "Use Megatron-LM?",
        "splits layers over GPUs and chains of layers over groups of GPUs",
    );
    if !ask.yes_no(q, false)? {
        return Ok(false);
    }
    let mut section = Section::default();
    degrees(ask, &mut section)?;
    for (key, q) in [
        (
            "megatron_lm_recompute_activations",
            question(
                "Recompute some of the activations in the backward pass?",
                "needs less memory at a small cost of time",
            ),
        ),
        (
            "megatron_lm_use_distributed_optimizer",
            question(
                "Shard the optimizer over the data-parallel ranks?",
                "its states and the gradients are divided between them",
            ),
        ),
    ] {
        section.set(key, ask.yes_no(q, true)?);
    }
    let q = question(
        "At which global norm are gradients clipped?",
        "0 does not clip",
    );
    section.set("megatron_lm_gradient_clipping", ask.number(q, 1.0)?);
    record.set_section("megatron_lm_config", section);
    Ok(true)
}

fn degrees(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Over how many GPUs is each layer split (tensor parallelism)?",
        "1 does not split",
    );
    let tensor = ask.whole(q, 1..=i64::MAX, Some(1))?;
    section.set("megatron_lm_tp_degree", tensor);
    if tensor > 1 {
        let q = question(
            "Split along the sequence as well?",
            "saves activations where layers are split",
        );
        section.set("megatron_lm_sequence_parallelism", ask.yes_no(q, true)?);
    }
    let q = question(
        "How many stages has the pipeline of layers?",
        "1 has no pipeline",
    );
    let pipeline = ask.whole(q, 1..=i64::MAX, Some(1))?;
    section.set("megatron_lm_pp_degree", pipeline);
    if pipeline > 1 {
        let q = question(
            "Into how many micro-batches is a batch cut?",
            "more of them keep the pipeline busier",
        );
        let number = ask.whole(q, 1..=i64::MAX, Some(1))?;
        section.set("megatron_lm_num_micro_batches", number);
    }
    Ok(())
}
