//! A Llama on two processes, whole on each or in shards: the time of a step, memory, what is sent.

use crate::failure::Failure;
use crate::workspace::Workspace;

use super::parts::{self, Goal, Row, Suite, Unit};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 3;

/// What is sent may be so much more than theory says: there are headers, and storages are filled up.
const THEORY: Goal = Goal::Ratio(1.01);

/// The sizes of `tests/parity/bench_sharded.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Size {
    /// 20 million parameters: a minute or two for each round.
    Small,
    /// 200 million parameters: up to 6 GB of memory for each of two processes.
    Large,
}

impl Size {
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Small => &["--size", "small"],
            Self::Large => &["--size", "large"],
        }
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::Small => "2 processes of 1 thread; a Llama of 20.3M parameters",
            Self::Large => "2 processes of 1 thread; a Llama of 200.6M parameters",
        }
    }
}

/// Runs each part by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(workspace: &Workspace, rounds: u32, size: Size) -> Result<String, Failure> {
    let suite = Suite {
        example: "model_pace",
        script: "tests/parity/bench_sharded.py",
        parts: &[("ddp", 2), ("shard_grad_op", 2), ("full_shard", 2)],
        arguments: size.arguments(),
        flags,
        processes: size.in_words(),
        rows: rows(),
    };
    parts::measure(workspace, rounds, &suite)
}

/// What the launcher is told, as anybody would tell it.
fn flags(part: &str) -> Vec<&'static str> {
    let strategy = match part {
        "full_shard" => "FULL_SHARD",
        "shard_grad_op" => "SHARD_GRAD_OP",
        _ => return parts::on_cpu(part),
    };
    vec![
        "--use_fsdp",
        "--fsdp_sharding_strategy",
        strategy,
        "--fsdp_auto_wrap_policy",
        "TRANSFORMER_BASED_WRAP",
        "--fsdp_transformer_layer_cls_to_wrap",
        "LlamaDecoderLayer",
        "--fsdp_backward_prefetch",
        "BACKWARD_PRE",
        "--fsdp_forward_prefetch",
        "true",
    ]
}

fn rows() -> Vec<Row> {
    let mut rows = times();
    rows.extend(memory());
    rows.extend(traffic());
    rows
}

fn times() -> Vec<Row> {
    let row = |name: &str, key: &str, goal| Row::new(name, key, Unit::Milliseconds, goal);
    vec![
        row(
            "whole on each, beside `DistributedDataParallel`: a step",
            "ddp_step_s",
            Goal::NOT_SLOWER,
        ),
        row(
            "`SHARD_GRAD_OP`, beside `fully_shard` that keeps parameters: a step",
            "shard_grad_op_step_s",
            Goal::NOT_SLOWER,
        ),
        row(
            "`FULL_SHARD`, beside `fully_shard`: a step",
            "full_shard_step_s",
            Goal::Ratio(0.45),
        ),
        row(
            "`SHARD_GRAD_OP`, beside ours whole on each: a step",
            "shard_grad_op_step_s",
            Goal::Ratio(1.05),
        )
        .beside_own("ddp_step_s"),
        row(
            "`FULL_SHARD`, beside ours whole on each: a step",
            "full_shard_step_s",
            Goal::Ratio(1.1),
        )
        .beside_own("ddp_step_s"),
    ]
}

fn memory() -> Vec<Row> {
    let row = |name: &str, key: &str, goal| Row::new(name, key, Unit::Mebibytes, goal);
    vec![
        row(
            "whole on each: peak memory of a rank",
            "ddp_peak_bytes",
            Goal::NOT_SLOWER,
        ),
        row(
            "`SHARD_GRAD_OP`: peak memory of a rank",
            "shard_grad_op_peak_bytes",
            Goal::NOT_SLOWER,
        ),
        row(
            "`FULL_SHARD`: peak memory of a rank",
            "full_shard_peak_bytes",
            Goal::NOT_SLOWER,
        ),
        row(
            "`FULL_SHARD`, beside ours whole on each: peak memory of a rank",
            "full_shard_peak_bytes",
            Goal::None,
        )
        .beside_own("ddp_peak_bytes"),
    ]
}

fn traffic() -> Vec<Row> {
    let parts = [
        ("whole on each", "ddp"),
        ("`SHARD_GRAD_OP`", "shard_grad_op"),
        ("`FULL_SHARD`", "full_shard"),
    ];
    let rows = parts.into_iter().flat_map(|(name, part)| {
        let sent = format!("{part}_sent_bytes");
        let row = |what: &str, goal| {
            let name = format!("{name}, beside {what}: sent by a rank in a step");
            Row::new(&name, &sent, Unit::Bytes, goal)
        };
        [
            row("theory", THEORY).beside_own(&format!("{part}_theory_bytes")),
            row("the original", Goal::None),
        ]
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_that_are_said() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/parity/bench_sharded.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let sizes: serde_json::Value = serde_json::from_str(&text).unwrap();
        for size in [Size::Small, Size::Large] {
            let setting = &sizes[size.arguments()[1]];
            let number = |key: &str| setting["config"][key].as_f64().unwrap();
            let (width, inner) = (number("hidden_size"), number("intermediate_size"));
            assert_eq!(number("num_attention_heads"), number("num_key_value_heads"));
            let layer = 4.0 * width * width + 3.0 * width * inner + 2.0 * width;
            let all =
                2.0 * number("vocab_size") * width + number("num_hidden_layers") * layer + width;
            let said = format!("of {:.1}M parameters", all / 1e6);
            assert!(size.in_words().ends_with(&said), "{said}");
            assert!(setting["steps"].as_u64().unwrap() > 2);
            assert!(setting["warm_up"].as_u64().unwrap() > 0);
        }
    }

    #[test]
    fn what_is_in_shards_is_asked_for_by_flags() {
        assert_eq!(flags("ddp"), ["--cpu"]);
        for (part, strategy) in [
            ("full_shard", "FULL_SHARD"),
            ("shard_grad_op", "SHARD_GRAD_OP"),
        ] {
            let flags = flags(part);
            assert_eq!(
                flags[..3],
                ["--use_fsdp", "--fsdp_sharding_strategy", strategy]
            );
        }
        assert_eq!(rows().len(), 5 + 4 + 6);
    }
}
