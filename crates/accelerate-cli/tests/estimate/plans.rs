//! The memory for training under each sharding plan.

use accelerate_formats::Dtype;
use serde_json::Value;

use crate::command::Folder;

const LLAMA: &str = r#"{
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 6, "vocab_size": 500
}"#;

fn plan<'a>(json: &'a Value, plan: &str, precision: &str) -> &'a Value {
    let plans = json["training"]["plans"].as_array().unwrap();
    let is_it = |found: &&Value| found["plan"] == plan && found["mixed_precision"] == precision;
    plans.iter().find(is_it).unwrap()
}

#[test]
fn every_plan_is_counted_on_each_process() {
    let folder = Folder::new();
    folder.write("config.json", LLAMA);
    let json = folder.json(&["config.json", "--num_processes", "8", "--num_machines", "2"]);
    let layer = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64;
    let rest = 500 * 64 + 64;
    let all = 6 * layer + rest;
    let buffers = 2 * 8 * 4;
    assert_eq!(json["parameters"], all);
    assert_eq!(json["training"]["trainable_parameters"], all);

    let ddp = plan(&json, "ddp", "no");
    assert_eq!(ddp["per_process_bytes"], 16 * all + buffers);
    let full = plan(&json, "full_shard", "no");
    assert_eq!(full["weights_bytes"], all / 8 * 4 + buffers);
    assert_eq!(full["copies_bytes"], (rest + 2 * layer) * 4);
    assert_eq!(full["optimizer_bytes"], all);
    let mixed = plan(&json, "full_shard", "bf16");
    assert_eq!(mixed["copies_bytes"], (rest + 2 * layer) * 2);
    assert_eq!(plan(&json, "hybrid_shard", "no")["shards"], 4);
    assert_eq!(plan(&json, "zero2", "no")["gradients_bytes"], all / 8 * 4);
}

#[test]
fn the_table_follows_the_one_of_the_original() {
    let folder = Folder::new();
    folder.write("config.json", LLAMA);
    let ended = folder.run(&["config.json", "--num_processes", "4", "--optimizer", "sgd"]);
    assert_eq!(ended.code, Some(0));
    assert!(
        ended
            .out
            .contains("Training `config.json` on each of 4 processes with sgd")
    );
    assert!(
        ended.out.contains("│ ZeRO-3 / FULL_SHARD  │"),
        "{}",
        ended.out
    );
    let plain = folder.run(&["config.json"]);
    let table = plain.out.split("\n\n").next().unwrap();
    assert!(ended.out.starts_with(table));
    assert!(!plain.out.contains("ZeRO"));
}

#[test]
fn weights_alone_are_enough() {
    let folder = Folder::new();
    let tensors: [(&str, Dtype, &[usize]); 3] = [
        ("layers.0.w", Dtype::Bf16, &[40, 2]),
        ("layers.1.w", Dtype::I8, &[64]),
        ("positions", Dtype::I64, &[3]),
    ];
    folder.weights("model.safetensors", &tensors);
    let json = folder.json(&[".", "--num_processes", "2", "--mixed_precision", "fp16"]);
    assert_eq!(json["training"]["trainable_parameters"], 80);
    assert_eq!(json["training"]["fixed_bytes"], 64 + 24);
    let ddp = plan(&json, "ddp", "fp16");
    assert_eq!(ddp["weights_bytes"], 80 * 4 + 88);
    assert_eq!(json["training"]["plans"].as_array().unwrap().len(), 5);
    let note = json["notes"][0].as_str().unwrap();
    assert!(note.ends_with("and are not trained"), "{note}");
}

#[test]
fn processes_that_do_not_divide_are_a_usage_error() {
    let folder = Folder::new();
    folder.write("config.json", LLAMA);
    let ended = folder.run(&["config.json", "--num_processes", "3", "--num_machines", "2"]);
    assert_eq!(ended.code, Some(2));
    let expected = "error: 3 processes cannot be shared out evenly over 2 machines";
    assert!(ended.err.starts_with(expected), "{}", ended.err);
    assert_eq!(
        folder.run(&["config.json", "--num_processes", "0"]).code,
        Some(2)
    );
}

#[test]
fn the_plan_of_a_config_file_is_shown_with_its_bytes() {
    let folder = Folder::new();
    folder.write("config.json", LLAMA);
    folder.write(
        "job.yaml",
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 4\nfsdp_config:\n  \
         fsdp_sharding_strategy: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  \
         fsdp_offload_params: true\n  fsdp_backward_prefetch: BACKWARD_PRE\n",
    );
    let json = folder.json(&["config.json", "--config_file", "job.yaml"]);
    let layer = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64;
    let rest = 500 * 64 + 64;
    let all: u64 = 6 * layer + rest;
    let buffers = 2 * 8 * 4;
    let plan = &json["configured"];
    assert_eq!(plan["num_processes"], 4);
    assert_eq!(plan["copies_bytes"], (rest + 2 * layer) * 2);
    assert_eq!(plan["gradients_bytes"], all);
    assert_eq!(plan["optimizer_bytes"], 2 * all);
    assert_eq!(plan["device_bytes"], (rest + 2 * layer) * 2 + buffers);
    assert_eq!(plan["cpu_bytes"], 4 * all);
    let text = folder
        .run(&["config.json", "--config_file", "job.yaml"])
        .out;
    assert!(text.contains("Plan of `job.yaml`:\n  told as "), "{text}");
    assert!(text.contains("(job.yaml:5)"), "{text}");
    assert!(
        text.contains("On each of its 4 processes: weights "),
        "{text}"
    );

    folder.write("plain.yaml", "distributed_type: MULTI_CPU\n");
    let ended = folder.run(&["config.json", "--config_file", "plain.yaml"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("asks for no sharding"), "{}", ended.err);
}
