//! Everything that is tried out, in order: what is simple comes first.

mod accumulation;
mod checkpoint;
mod collectives;
mod control;
mod exchanges;
mod loading;
mod random_state;
mod state;
mod training;
mod trees;

use crate::stage::Stage;

/// All stages.
pub(crate) const STAGES: &[Stage] = &[
    Stage::new("state", state::STEPS),
    Stage::new("process_control", control::STEPS),
    Stage::unavailable(
        "split_between_processes",
        "the library cannot split a list or map between processes yet",
    ),
    Stage::of_several("collectives", collectives::STEPS),
    Stage::of_several("exchanges", exchanges::STEPS),
    Stage::new("trees", trees::STEPS),
    Stage::new("random_state", random_state::STEPS),
    Stage::new("loading", loading::STEPS),
    Stage::unavailable(
        "dispatched_loading",
        "the library has no loader yet that reads on rank 0 for all",
    ),
    Stage::new("accumulation", accumulation::STEPS),
    Stage::new("training_float32", training::FLOAT32),
    Stage::new("training_bfloat16", training::BFLOAT16),
    Stage::of_several("gradient_compression", training::COMPRESSED),
    Stage::unavailable(
        "mixed_precision",
        "the accelerator cannot compute in bf16, fp16 or fp8 beside float32 yet",
    ),
    Stage::new("checkpoint", checkpoint::STEPS),
    Stage::unavailable(
        "checkpoint_state",
        "the library cannot write the state of optimizers, schedules, loaders and random numbers yet",
    ),
    Stage::unavailable(
        "triggers",
        "the library has no trigger yet that one rank sets for all",
    ),
];
