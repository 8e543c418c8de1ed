//! What is counted, and from what.

use accelerate_formats::Dtype;

use crate::command::Folder;

const BERT_BASE_CASED: &str = r#"{
    "architectures": ["BertForMaskedLM"], "hidden_size": 768, "intermediate_size": 3072,
    "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
    "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 28996
}"#;

const BERT_TABLE: &str = "\
┌────────────────────────────────────────────────────┐
│     Memory Usage for loading `bert-base-cased`     │
├───────┬─────────────┬──────────┬───────────────────┤
│ dtype │Largest Layer│Total Size│Training using Adam│
├───────┼─────────────┼──────────┼───────────────────┤
│float32│   86.47 MB  │413.18 MB │      1.61 GB      │
│float16│   43.23 MB  │206.59 MB │     826.36 MB     │
│  int8 │   21.62 MB  │103.29 MB │     413.18 MB     │
│  int4 │   10.81 MB  │ 51.65 MB │     206.59 MB     │
└───────┴─────────────┴──────────┴───────────────────┘
";

#[test]
fn a_folder_begins_with_the_table_of_the_original() {
    let folder = Folder::new();
    folder.write("bert-base-cased/config.json", BERT_BASE_CASED);
    let ended = folder.run(&["bert-base-cased"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert!(ended.out.starts_with(BERT_TABLE), "{}", ended.out);
    assert!(
        ended
            .out
            .contains("BertModel from `bert-base-cased`, 108310272 parameters")
    );
    assert!(ended.out.contains("Not counted:\n  - activations"));
}

#[test]
fn types_are_chosen_and_a_file_is_enough() {
    let folder = Folder::new();
    folder.write("config.json", BERT_BASE_CASED);
    let rows = |arguments: &[&str]| {
        let json = folder.json(arguments);
        let rows = json["dtypes"].as_array().unwrap().clone();
        let row = |row: &serde_json::Value| {
            let total = row["total_bytes"].as_u64().unwrap();
            (row["dtype"].as_str().unwrap().to_owned(), total)
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let chosen = rows(&["config.json", "--dtypes", "float32", "bfloat16", "float8"]);
    let expected = [
        ("float32", 433_249_280),
        ("bfloat16", 216_624_640),
        ("float8", 108_312_320),
    ];
    assert_eq!(
        chosen,
        expected.map(|(name, total)| (name.to_owned(), total))
    );
    let refused = folder.run(&["config.json", "--dtypes", "float64"]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn the_class_can_be_chosen() {
    let folder = Folder::new();
    folder.write("config.json", BERT_BASE_CASED);
    let class = |architecture: &str| {
        let json = folder.json(&["config.json", "--architecture", architecture]);
        (
            json["class"].as_str().unwrap().to_owned(),
            json["tied_bytes"].as_u64().unwrap(),
        )
    };
    assert_eq!(class("base"), ("BertModel".to_owned(), 0));
    let tied = (28996 * 768 + 28996) * 4;
    assert_eq!(class("config"), ("BertForMaskedLM".to_owned(), tied));
    let unknown = folder.run(&["config.json", "--architecture", "BertForAll"]);
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.err.contains("`BertForPreTraining`"),
        "{}",
        unknown.err
    );
}

/// C46: floats, eight-bit floats with scales, whole numbers and packed ones.
const MIXED: [(&str, Dtype, &[usize]); 9] = [
    ("model.embed_tokens.weight", Dtype::Bf16, &[100, 16]),
    ("model.layers.0.q.weight", Dtype::F8E4m3, &[16, 16]),
    ("model.layers.0.q.weight_scale", Dtype::F32, &[16, 1]),
    ("model.layers.0.up.weight", Dtype::I8, &[64, 16]),
    ("model.layers.0.up.SCB", Dtype::F32, &[64]),
    ("model.layers.1.up.weight", Dtype::U8, &[333, 1]),
    ("model.layers.1.up.weight.absmax", Dtype::F32, &[11]),
    ("model.norm.weight", Dtype::F32, &[16]),
    ("model.positions", Dtype::I64, &[1, 7]),
];

#[test]
fn weights_are_counted_to_the_byte() {
    let folder = Folder::new();
    let bytes = folder.weights("one/model.safetensors", &MIXED);
    let json = folder.json(&["one"]);
    assert_eq!(json["stored"]["total_bytes"], bytes);
    assert_eq!(json["dtypes"][0]["dtype"], "stored");
    assert_eq!(json["dtypes"][0]["total_bytes"], bytes);
    assert_eq!(json["stored"]["quantized"], true);
    let sums = json["stored"]["dtypes"].as_array().unwrap();
    let sum: u64 = sums.iter().map(|sum| sum["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, bytes);
    // Only the two tensors that are neither quantised nor a scale of such change.
    let kept = bytes - 100 * 16 * 2 - 16 * 4;
    assert_eq!(json["dtypes"][1]["total_bytes"], kept + (100 * 16 + 16) * 4);
    assert_eq!(json["dtypes"][2]["total_bytes"], kept + (100 * 16 + 16) * 2);
    let text = folder.run(&["one/model.safetensors"]);
    assert!(
        text.out.contains(&format!("On disk: {bytes} bytes")),
        "{}",
        text.out
    );
}

#[test]
fn weights_in_several_files_are_counted_as_one() {
    let folder = Folder::new();
    let (first, second) = MIXED.split_at(4);
    let bytes =
        folder.weights("two/a.safetensors", first) + folder.weights("two/b.safetensors", second);
    let map = first.iter().map(|(name, ..)| (name, "a.safetensors"));
    let map = map.chain(second.iter().map(|(name, ..)| (name, "b.safetensors")));
    let map: serde_json::Map<_, _> = map.map(|(n, f)| ((*n).to_owned(), f.into())).collect();
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    folder.write("two/model.safetensors.index.json", &index.to_string());
    let json = folder.json(&["two"]);
    assert_eq!(json["stored"]["total_bytes"], bytes);
    assert_eq!(json["stored"]["files"], 2);
    assert_eq!(
        folder.json(&["two/model.safetensors.index.json"])["stored"]["total_bytes"],
        bytes
    );

    std::fs::remove_file(folder.path("two/b.safetensors")).unwrap();
    let ended = folder.run(&["two"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("b.safetensors"), "{}", ended.err);
    folder.write("two/config.json", BERT_BASE_CASED);
    let json = folder.json(&["two"]);
    assert_eq!(json["class"], "BertModel");
    assert!(
        json["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("1 of the files")
    );
}

#[test]
fn an_unknown_type_is_counted_by_its_weights() {
    let folder = Folder::new();
    folder.write(
        "new/config.json",
        r#"{"model_type": "nobody", "auto_map": {"AutoModel": "m.M"}}"#,
    );
    let ended = folder.run(&["new"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(
        ended.err.contains("`nobody`") && ended.err.contains("Python code"),
        "{}",
        ended.err
    );
    assert!(
        ended.err.contains("hint: put the safetensors files"),
        "{}",
        ended.err
    );
    let trusted = folder.run(&["new", "--trust_remote_code"]);
    assert!(
        trusted.err.contains("never runs code of a model"),
        "{}",
        trusted.err
    );

    let layers: [(&str, Dtype, &[usize]); 3] = [
        ("blocks.0.up.weight", Dtype::F16, &[8, 4]),
        ("blocks.0.down.weight", Dtype::F16, &[4, 8]),
        ("head.weight", Dtype::F16, &[40]),
    ];
    folder.weights("new/model.safetensors", &layers);
    let json = folder.json(&["new"]);
    assert_eq!(json["largest_layers"][0]["name"], "blocks.0");
    assert_eq!(json["dtypes"][1]["largest_layer_bytes"], 64 * 4);
    assert_eq!(json["dtypes"][1]["training_bytes"], 104 * 16);
}

#[test]
fn a_known_model_with_weights_shows_both() {
    let folder = Folder::new();
    folder.write("bert-base-cased/config.json", BERT_BASE_CASED);
    folder.weights("bert-base-cased/model.safetensors", &MIXED);
    let ended = folder.run(&["bert-base-cased"]);
    assert!(ended.out.starts_with(BERT_TABLE), "{}", ended.out);
    assert!(
        ended.out.contains("Weights on disk of `bert-base-cased`"),
        "{}",
        ended.out
    );
}

#[test]
fn damaged_files_are_told() {
    let folder = Folder::new();
    folder.write(
        "model.safetensors",
        "version https://git-lfs.github.com/spec/v1\n",
    );
    let ended = folder.run(&["."]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("model.safetensors"), "{}", ended.err);
    folder.write("broken/config.json", "{\"model_type\": \"bert\",");
    let ended = folder.run(&["broken"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("is no JSON object\n  caused by:"),
        "{}",
        ended.err
    );
    folder.write(
        "odd/config.json",
        r#"{"model_type": "bert", "hidden_size": "wide"}"#,
    );
    let ended = folder.run(&["odd"]);
    let expected = "`hidden_size` in `odd/config.json`: expected a whole number";
    assert!(ended.err.contains(expected), "{}", ended.err);
}
