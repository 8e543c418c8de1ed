//! Models by their name on the hub, from the cache that Python fills.

use crate::command::Folder;

const GPT2: &str = r#"{"model_type": "gpt2"}"#;

#[test]
fn a_name_is_found_in_the_cache() {
    let folder = Folder::new();
    let commit = "607a30d783dfa663caf39e06633721c8d4cfcd7e";
    folder.write("cache/models--openai-community--gpt2/refs/main", commit);
    let config = format!("cache/models--openai-community--gpt2/snapshots/{commit}/config.json");
    folder.write(&config, GPT2);
    let json = folder.json(&["openai-community/gpt2"]);
    assert_eq!(json["class"], "GPT2Model");
    assert_eq!(json["dtypes"][0]["total_bytes"], 497_759_232);
    assert!(json["path"].as_str().unwrap().ends_with(commit));
    let by_commit = format!("openai-community/gpt2@{commit}");
    assert_eq!(folder.json(&[&by_commit])["class"], "GPT2Model");
}

#[test]
fn a_name_that_is_not_cached_is_told_with_the_way_to_get_it() {
    let folder = Folder::new();
    let ended = folder.run(&["openai-community/gpt2"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    let start = "error: `openai-community/gpt2` is not in the cache `";
    assert!(ended.err.starts_with(start), "{}", ended.err);
    let hint = "hint: fetch it with `hf download openai-community/gpt2 config.json`";
    assert!(ended.err.contains(hint), "{}", ended.err);
}

#[test]
fn what_is_neither_path_nor_name_is_told() {
    let folder = Folder::new();
    for wrong in ["/no/such/model", "../model", "a/b/c", "a b"] {
        let ended = folder.run(&[wrong]);
        assert_eq!(ended.code, Some(1), "{wrong}");
        assert!(ended.err.starts_with("error: no model `"), "{}", ended.err);
    }
}

#[test]
fn the_resnet_of_the_guide_needs_no_cache() {
    let expected = "\
┌────────────────────────────────────────────────────┐
│  Memory Usage for loading `timm/resnet50.a1_in1k`  │
├───────┬─────────────┬──────────┬───────────────────┤
│ dtype │Largest Layer│Total Size│Training using Adam│
├───────┼─────────────┼──────────┼───────────────────┤
│float32│    9.0 MB   │ 97.7 MB  │     390.78 MB     │
│float16│    4.5 MB   │ 48.85 MB │     195.39 MB     │
│  int8 │   2.25 MB   │ 24.42 MB │      97.7 MB      │
│  int4 │   1.12 MB   │ 12.21 MB │      48.85 MB     │
└───────┴─────────────┴──────────┴───────────────────┘
";
    let folder = Folder::new();
    let ended = folder.run(&["timm/resnet50.a1_in1k", "--library-name", "timm"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.out.starts_with(expected), "{}", ended.out);
    let unknown = folder.run(&["vgg16", "--library_name", "timm"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("`resnet152`"), "{}", unknown.err);
    assert_eq!(
        folder.run(&["resnet18", "--library_name", "keras"]).code,
        Some(2)
    );
}
