//! Models: training steps, generation, and how soon an encoder has its first vector.

use crate::failure::Failure;
use crate::workspace::Workspace;

use super::parts::{self, Goal, Row, Suite, Unit};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 3;

/// The models of `tests/parity/bench_models.json`.
const MODELS: [(&str, &str); 7] = [
    ("bert", "BERT"),
    ("gpt2", "GPT-2"),
    ("llama", "Llama"),
    ("mixtral", "Mixtral"),
    ("t5", "T5"),
    ("resnet", "ResNet"),
    ("vit", "ViT"),
];

/// Those of them that write.
const WRITERS: [&str; 3] = ["gpt2", "llama", "t5"];

/// The two sizes of each. Where a model is small, what the original spends in Python shows.
const SIZES: [(&str, Goal); 2] = [("large", Goal::NOT_SLOWER), ("small", Goal::Ratio(0.7))];

/// Runs each part by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(workspace: &Workspace, rounds: u32) -> Result<String, Failure> {
    let suite = Suite {
        example: "model_pace",
        script: "tests/parity/bench_models.py",
        parts: &[("train", 1), ("generate", 1), ("start", 1)],
        arguments: &[],
        flags: parts::on_cpu,
        processes: "1 process of 1 thread",
        rows: rows(),
    };
    parts::measure(workspace, rounds, &suite)
}

fn rows() -> Vec<Row> {
    let trained = MODELS.iter().flat_map(|(key, name)| {
        SIZES.map(|(size, goal)| {
            let key = format!("{key}_{size}_step_s");
            Row::new(
                &format!("{name}, {size}: a training step"),
                &key,
                Unit::Milliseconds,
                goal,
            )
        })
    });
    let writers = MODELS.iter().filter(|(key, _)| WRITERS.contains(key));
    let written = writers.flat_map(|(key, name)| {
        SIZES.into_iter().flat_map(move |(size, goal)| {
            [(1, "greedy"), (4, "4 beams")].map(|(beams, way)| {
                let key = format!("{key}_{size}_{beams}_beams_token_s");
                let name = format!("{name}, {size}, {way}: a token of each of 4 texts");
                Row::new(&name, &key, Unit::Milliseconds, goal)
            })
        })
    });
    let start = Row::new(
        "MiniLM: start of the program to its first vector",
        "minilm_start_s",
        Unit::Seconds,
        Goal::Ratio(0.1),
    );
    trained.chain(written).chain([start]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_name_the_models_that_are_measured() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/parity/bench_models.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let shapes: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut found: Vec<&String> = shapes.as_object().unwrap().keys().collect();
        found.sort();
        let mut named = MODELS.map(|(key, _)| key);
        named.sort_unstable();
        assert_eq!(found, named);
        for (_, sizes) in shapes.as_object().unwrap() {
            for (size, _) in SIZES {
                assert!(sizes[size]["rows"].is_i64(), "{sizes}");
            }
        }
        assert_eq!(rows().len(), 7 * 2 + 3 * 2 * 2 + 1);
    }
}
