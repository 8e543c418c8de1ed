//! Commands that compute nothing load nothing big and answer at once.

use std::time::{Duration, Instant};

use crate::ours::{Done, Home};

/// A machine may be busy, so this is far above what they take; `cargo xtask bench-peers` measures.
const AT_ONCE: Duration = Duration::from_secs(1);

fn commands(home: &Home) -> Vec<Vec<String>> {
    let model = home.path("model");
    std::fs::create_dir(&model).unwrap();
    home.write("model/config.json", MODEL);
    let file = home.write("job.yaml", "distributed_type: 'NO'\n");
    let (model, file) = (model.display().to_string(), file.display().to_string());
    let list: [&[&str]; 7] = [
        &["--help"],
        &["launch", "--help"],
        &["env"],
        &["config", "show", "--config_file", &file],
        &["config", "default", "--config_file", "default.json"],
        &["estimate-memory", &model],
        &["launch", "--cpu", "--dry_run", "true"],
    ];
    let owned = list.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    owned.into()
}

/// A small model of a kind whose parameters are known.
const MODEL: &str = r#"{
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "vocab_size": 100, "max_position_embeddings": 64, "type_vocab_size": 2
}"#;

#[test]
fn commands_do_not_load_libtorch() {
    let home = Home::new();
    for arguments in commands(&home) {
        let mut command = home.accelerate();
        // The loader names each library, those of child processes too.
        let command = command.args(&arguments).env("LD_DEBUG", "files");
        let done = Done::of(&command.output().unwrap()).assert_code(0);
        let loaded: Vec<_> = done
            .stderr
            .lines()
            .filter_map(|line| line.split_once("file=")?.1.split_whitespace().next())
            .collect();
        assert!(
            loaded.iter().any(|name| name.starts_with("libc.")),
            "{arguments:?}: the loader tells nothing: {}",
            done.stderr
        );
        let big = loaded
            .iter()
            .find(|name| name.contains("torch") || name.contains("c10") || name.contains("python"));
        assert_eq!(big, None, "{arguments:?}");
    }
}

#[test]
fn commands_answer_at_once() {
    let home = Home::new();
    for arguments in commands(&home) {
        let took = (0..3).map(|_| {
            let start = Instant::now();
            Done::of(&home.accelerate().args(&arguments).output().unwrap()).assert_code(0);
            start.elapsed()
        });
        let fastest = took.min().unwrap();
        assert!(fastest < AT_ONCE, "{arguments:?}: {fastest:?}");
    }
}
