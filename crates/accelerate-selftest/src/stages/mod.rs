//! Everything that is tried out, in order: what is simple comes first.

mod accumulation;
mod checkpoint;
mod checkpoint_state;
mod collectives;
mod control;
mod dispatching;
mod exchanges;
mod loading;
mod mixed_precision;
mod random_state;
mod splitting;
mod state;
mod training;
mod trees;
mod triggers;

use crate::stage::Stage;

/// All stages.
pub(crate) const STAGES: &[Stage] = &[
    Stage::new("state", state::STEPS),
    Stage::new("process_control", control::STEPS),
    Stage::new("split_between_processes", splitting::STEPS),
    Stage::of_several("collectives", collectives::STEPS),
    Stage::of_several("exchanges", exchanges::STEPS),
    Stage::new("trees", trees::STEPS),
    Stage::new("random_state", random_state::STEPS),
    Stage::new("loading", loading::STEPS),
    Stage::new("dispatched_loading", dispatching::STEPS),
    Stage::new("accumulation", accumulation::STEPS),
    Stage::new("training_float32", training::FLOAT32),
    Stage::new("training_bfloat16", training::BFLOAT16),
    Stage::of_several("gradient_compression", training::COMPRESSED),
    Stage::new("mixed_precision", mixed_precision::STEPS),
    Stage::new("checkpoint", checkpoint::STEPS),
    Stage::new("checkpoint_state", checkpoint_state::STEPS),
    Stage::new("triggers", triggers::STEPS),
];
