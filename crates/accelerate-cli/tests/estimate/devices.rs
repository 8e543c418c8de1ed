//! Models on given devices: device maps, caches, adapters, and which ways fit.

use accelerate_formats::Dtype;
use serde_json::{Value, json};

use crate::command::Folder;

const LLAMA: &str = r#"{
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 6, "vocab_size": 500
}"#;
const LAYER: u64 = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64;
const WORDS: u64 = 500 * 64;
const ALL: u64 = 6 * LAYER + WORDS + 64;

fn llama() -> Folder {
    let folder = Folder::new();
    folder.write("config.json", LLAMA);
    folder
}

#[test]
fn a_device_map_is_shown_with_its_reasons() {
    let folder = llama();
    let words = [
        "config.json",
        "--dtypes",
        "float32",
        "--max_memory",
        "0=600KB,cpu=1MB",
    ];
    let json = folder.json(&words);
    let map = &json["inference"]["dtypes"][0]["map"];
    assert_eq!(
        map["device_map"],
        json!({
            "embed_tokens": 0, "layers.0": 0, "layers.1": "cpu", "layers.2": "cpu",
            "layers.3": "cpu", "layers.4": "cpu", "layers.5": "cpu", "norm": "cpu",
            "rotary_emb": "cpu"
        })
    );
    assert_eq!(map["main_device"], "0");
    assert_eq!(map["places"][0]["weights_bytes"], (WORDS + LAYER) * 4);
    assert_eq!(
        map["largest_offloaded"],
        json!({"name": "layers.1", "bytes": LAYER * 4})
    );
    assert_eq!(map["problem"], Value::Null);
    let ended = folder.run(&[&words[..], &["--explain"]].concat());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    for told in [
        "Device map in float32:",
        "  0: embed_tokens, layers.0\n",
        "  cpu: layers.1 to 5, norm, rotary_emb\n",
        "  `0` holds 285.5 KB of weights of 585.94 KB\n",
        "0 is full: `layers.1` (160.5 KB) does not fit into the limit of 585.94 KB",
    ] {
        assert!(ended.out.contains(told), "{told}\n{}", ended.out);
    }
    let same = folder.json(&[
        "config.json",
        "--dtypes",
        "float32",
        "--max-memory",
        r#"{"0": "600KB", "cpu": 1000000}"#,
    ]);
    assert_eq!(same["inference"], json["inference"]);
}

#[test]
fn a_limit_below_the_largest_block_is_told() {
    let folder = llama();
    let words = [
        "config.json",
        "--dtypes",
        "float32",
        "--max_memory",
        "0=100KB",
    ];
    let json = folder.json(&words);
    let problem = json["inference"]["dtypes"][0]["map"]["problem"]
        .as_str()
        .unwrap();
    assert!(
        problem.starts_with("`layers.0` must be whole on `0`"),
        "{problem}"
    );
    assert!(
        problem.contains("takes 164352 bytes (160.5 KB)"),
        "{problem}"
    );
}

#[test]
fn keys_and_values_are_counted_where_their_layer_is_computed() {
    let folder = llama();
    let words = [
        "config.json",
        "--dtypes",
        "float16",
        "--sequence_length",
        "100",
        "--batch_size",
        "2",
    ];
    let cache = 2 * 6 * 64 * 200 * 2;
    let json = folder.json(&words);
    let running = &json["inference"]["dtypes"][0];
    assert_eq!(running["cache_bytes"], cache);
    assert_eq!(running["weights_bytes"], (ALL + 16) * 2);
    assert_eq!(json["inference"]["cache"]["head_dim"], 16);
    assert_eq!(running["map"], Value::Null);
    let limits = ["--max_memory", "0=600KB,cpu=1MB"];
    let json = folder.json(&[&words[..], &limits].concat());
    let places = json["inference"]["dtypes"][0]["map"]["places"]
        .as_array()
        .unwrap();
    assert_eq!(
        places[0]["cache_bytes"], cache,
        "all layers are computed on 0: {places:?}"
    );
    assert_eq!(places[1]["cache_bytes"], 0);
    let held = |place: &Value| {
        place["weights_bytes"].as_u64().unwrap() + place["cache_bytes"].as_u64().unwrap()
    };
    assert!(held(&places[0]) + LAYER * 2 <= 600_000, "{places:?}");
    let ended = folder.run(&words);
    let told = "Keys and values of 2 x 100 tokens (6 layers, 4 heads of 16):";
    assert!(ended.out.contains(told), "{}", ended.out);
}

#[test]
fn adapters_are_trained_beside_frozen_weights() {
    let folder = llama();
    let json = folder.json(&["config.json", "--lora_rank", "8"]);
    let lora = &json["training"]["lora"];
    let adapters: u64 = 6 * 2 * 8 * 128;
    assert_eq!(lora["target_modules"], json!(["q_proj", "v_proj"]));
    assert_eq!(lora["adapted_modules"], 12);
    assert_eq!(lora["trainable_parameters"], adapters);
    assert_eq!(lora["frozen_parameters"], ALL);
    let ddp = &json["training"]["plans"][0];
    assert_eq!(ddp["weights_bytes"], adapters * 4 + ALL * 2 + 64);
    assert_eq!(ddp["gradients_bytes"], adapters * 4);
    assert_eq!(ddp["optimizer_bytes"], adapters * 8);
    let quantised = folder.json(&[
        "config.json",
        "--lora_rank",
        "8",
        "--lora_target_modules",
        "q_proj,down_proj",
        "--base_dtype",
        "int4",
    ]);
    assert_eq!(quantised["training"]["fixed_bytes"], ALL / 2 + 64);
    let ended = folder.run(&[
        "config.json",
        "--lora_rank",
        "8",
        "--lora_target_modules",
        "q_prj",
    ]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("`q_prj`") && ended.err.contains("`q_proj`"),
        "{}",
        ended.err
    );
}

fn plan(folder: &Folder, words: &[&str]) -> Value {
    let words = [&["config.json", "--architecture", "base", "--json"], words].concat();
    let ended = folder.accelerate("plan", &words, &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    serde_json::from_str(&ended.out).unwrap()
}

fn way<'a>(ways: &'a Value, name: &str) -> &'a Value {
    let ways = ways.as_array().unwrap();
    ways.iter().find(|way| way["way"] == name).unwrap()
}

#[test]
fn the_first_way_that_fits_is_recommended() {
    let folder = llama();
    let of = |limits: &str| {
        let plan = plan(&folder, &["--max_memory", limits]);
        let text = |what: &str| plan["recommended"][what].as_str().map(str::to_owned);
        (text("inference"), text("training"))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of("0=9MB"), (some("plain"), some("plain")));
    assert_eq!(of("0=3MB,1=3MB"), (some("plain"), some("stage_1")));
    assert_eq!(
        of("0=2MB,1=2MB,cpu=100MB"),
        (some("plain"), some("stage_3_cpu"))
    );
    assert_eq!(
        of("0=400KB,1=400KB,cpu=1MB"),
        (some("pipelined"), some("stage_3_disk"))
    );
    assert_eq!(
        of("0=400KB,cpu=5MB"),
        (some("cpu_offload"), some("stage_3_cpu"))
    );
    assert_eq!(of("0=200KB,cpu=100KB").0, some("disk_offload"));
    assert_eq!(of("0=80KB"), (None, None));
    assert_eq!(of("cpu=9MB"), (some("plain"), some("plain")));
}

#[test]
fn every_way_has_its_numbers() {
    let folder = llama();
    let plan = plan(&folder, &["--max_memory", "0=2MB,1=2MB,cpu=100MB"]);
    assert_eq!(plan["num_processes"], 2);
    assert_eq!(plan["detected"], false);
    let training = &plan["training"];
    assert_eq!(way(training, "plain")["device_bytes"], ALL * 18 + 64);
    assert_eq!(way(training, "stage_1")["device_bytes"], ALL * 10 + 64);
    let gathered = (WORDS + 64 + 2 * LAYER) * 2;
    assert_eq!(
        way(training, "stage_3")["device_bytes"],
        ALL * 8 + gathered + 64
    );
    let offloaded = way(training, "stage_3_cpu");
    assert_eq!(offloaded["device_bytes"], gathered + 64);
    assert_eq!(offloaded["cpu_bytes"], 2 * ALL * 8);
    assert_eq!(way(training, "stage_3_disk")["disk_bytes"], 2 * ALL * 8);
    assert_eq!(
        way(&plan["inference"], "plain")["device_bytes"],
        (ALL + 16) * 2
    );
    let problem = way(training, "plain")["problem"].as_str().unwrap();
    assert!(
        problem.starts_with("each process needs 5014720 bytes"),
        "{problem}"
    );
}

#[test]
fn one_process_gathers_what_waits_elsewhere() {
    let folder = llama();
    let plan = plan(&folder, &["--max_memory", "0=400KB,cpu=5MB"]);
    let offloaded = way(&plan["training"], "stage_3_cpu");
    assert_eq!(offloaded["device_bytes"], (WORDS + 64 + 2 * LAYER) * 2 + 64);
    assert_eq!(offloaded["cpu_bytes"], ALL * 16);
}

#[test]
fn weights_alone_are_placed_by_their_names() {
    let folder = Folder::new();
    let tensors: [(&str, Dtype, &[usize]); 5] = [
        ("head.weight", Dtype::Bf16, &[40, 2]),
        ("layers.0.w", Dtype::Bf16, &[40, 2]),
        ("layers.1.w", Dtype::Bf16, &[40, 2]),
        ("layers.10.q.weight", Dtype::I8, &[64]),
        ("layers.10.q.weight.scale", Dtype::F32, &[4]),
    ];
    folder.weights("model.safetensors", &tensors);
    let json = folder.json(&[
        ".",
        "--dtypes",
        "float16",
        "--max_memory",
        "0=480,1=1KB",
        "--device_map",
        "sequential",
    ]);
    let map = &json["inference"]["dtypes"][0]["map"]["device_map"];
    let expected = json!({"head": 0, "layers.0": 0, "layers.1": 1, "layers.10": 1});
    assert_eq!(map, &expected);
}

#[test]
fn the_plan_for_a_person_says_what_fits_and_why_not() {
    let folder = llama();
    let words = [
        "config.json",
        "--max_memory",
        "0=400KB,1=400KB,cpu=1MB",
        "--architecture",
        "base",
        "--explain",
    ];
    let ended = folder.accelerate("plan", &words, &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    for told in [
        "Devices of a machine: `0` 390.62 KB, `1` 390.62 KB, `cpu` 976.56 KB; 2 processes.",
        "Running: pipelined fits.",
        "Device map, pipelined:",
        "Running, plain: each process needs 557216 bytes (544.16 KB) and has 400000 bytes",
        "Training: stage 3, offloaded to disk fits.",
        "activations",
    ] {
        assert!(ended.out.contains(told), "{told}\n{}", ended.out);
    }
}

#[test]
fn wrong_limits_and_missing_facts_are_told() {
    let folder = llama();
    for (words, told) in [
        (
            &["config.json", "--max_memory", "0=1TB"][..],
            "`1TB` is no size",
        ),
        (
            &["config.json", "--max_memory", "gpu=1GB"],
            "`gpu` is no place",
        ),
        (
            &["config.json", "--max_memory", "disk=1GB"],
            "no place with memory to compute",
        ),
        (
            &[
                "config.json",
                "--max_memory",
                "0=1GB",
                "--num_processes",
                "3",
                "--num_machines",
                "2",
            ],
            "3 processes cannot be shared out evenly",
        ),
    ] {
        let ended = folder.accelerate("plan", words, &[]);
        assert_eq!(ended.code, Some(2), "{words:?}: {}", ended.err);
        assert!(ended.err.contains(told), "{words:?}: {}", ended.err);
    }
    folder.write("bert/config.json", r#"{"model_type": "bert"}"#);
    let ended = folder.run(&["bert", "--sequence_length", "10"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("keep no keys and values"),
        "{}",
        ended.err
    );
    let ended = folder.run(&["config.json", "--batch_size", "2"]);
    assert_eq!(ended.code, Some(2), "how long is a sample? {}", ended.err);
}
