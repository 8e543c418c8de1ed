//! The parts of a training loop one by one: loader, step, gathering of metrics, accumulation.

use crate::failure::Failure;
use crate::workspace::Workspace;

use super::parts::{self, Goal, Row, Suite, Unit};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 5;

/// A third of the original's time is three times its throughput.
const THIRD: Goal = Goal::Ratio(1.0 / 3.0);
const HALF: Goal = Goal::Ratio(0.5);
const NOT_SLOWER: Goal = Goal::NOT_SLOWER;

/// Runs each part by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(workspace: &Workspace, rounds: u32) -> Result<String, Failure> {
    let suite = Suite {
        example: "training_core",
        script: "tests/parity/bench_training_core.py",
        parts: &[("loader", 1), ("step", 1), ("gather", 2), ("accumulate", 2)],
        arguments: &[],
        flags: parts::on_cpu,
        processes: "1 thread each, 2 processes for what is between ranks",
        rows: rows(),
    };
    parts::measure(workspace, rounds, &suite)
}

fn rows() -> Vec<Row> {
    vec![
        Row::new(
            "loader, text, no workers: a sample",
            "text_0_sample_s",
            Unit::Microseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "loader, text, 2 workers: a sample",
            "text_2_sample_s",
            Unit::Microseconds,
            THIRD,
        ),
        Row::new(
            "loader, text, 2 workers: epoch to first batch",
            "text_2_first_batch_s",
            Unit::Milliseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "loader, images, no workers: a sample",
            "image_0_sample_s",
            Unit::Microseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "loader, images, 2 workers: a sample",
            "image_2_sample_s",
            Unit::Microseconds,
            THIRD,
        ),
        Row::new(
            "loader, images, 2 workers: epoch to first batch",
            "image_2_first_batch_s",
            Unit::Milliseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "images: copying a sample into a batch that exists",
            "image_copy_s",
            Unit::Microseconds,
            Goal::None,
        ),
        Row::new(
            "`gather_for_metrics` of `[64]` integers",
            "gather_labels_s",
            Unit::Microseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "`gather_for_metrics` of `[64, 128]` floats",
            "gather_scores_s",
            Unit::Microseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "batch that keeps gradients local",
            "local_s",
            Unit::Microseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "batch that exchanges gradients",
            "exchanged_s",
            Unit::Microseconds,
            NOT_SLOWER,
        ),
        Row::new(
            "sent by a batch that keeps gradients local",
            "local_bytes",
            Unit::Bytes,
            Goal::Nothing,
        ),
        Row::new(
            "sent by a batch that exchanges gradients",
            "exchanged_bytes",
            Unit::Bytes,
            Goal::None,
        ),
        Row::new(
            "AdamW, schedule, `zero_grad`: a step",
            "step_s",
            Unit::Microseconds,
            Goal::None,
        ),
        Row::new(
            "the same beside the original's fused AdamW",
            "step_s",
            Unit::Microseconds,
            Goal::None,
        )
        .beside("fused_step_s"),
        Row::new(
            "of it the kernel over ready lists",
            "kernel_s",
            Unit::Microseconds,
            Goal::None,
        ),
        Row::new(
            "overhead over the kernel",
            "step_overhead_s",
            Unit::Microseconds,
            HALF,
        ),
        Row::new(
            "the same beside the original's fused AdamW",
            "step_overhead_s",
            Unit::Microseconds,
            HALF,
        )
        .beside("fused_step_overhead_s"),
        Row::new(
            "prepared schedule: a step",
            "schedule_s",
            Unit::Microseconds,
            HALF,
        ),
    ]
}
