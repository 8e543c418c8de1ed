use std::error::Error as _;

use super::*;
use crate::Hint;

fn read(name: &str, bytes: &[u8]) -> Result<RawFile, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    RawFile::read(path)
}

#[test]
fn keys_come_in_order_with_their_lines() {
    let file = read(
        "c.yaml",
        b"# mine\nuse_cpu: no\n\nfsdp_config:\n  a: 1\nNO: x\n",
    )
    .unwrap();
    let found: Vec<_> = file
        .entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.line))
        .collect();
    assert_eq!(found, [("use_cpu", 2), ("fsdp_config", 4), ("NO", 6)]);
    assert_eq!(
        file.get("use_cpu").unwrap().value.kind,
        NodeKind::Bool(false)
    );
    assert_eq!(file.get("missing"), None);
    let expected = yaml::parse("{use_cpu: false, fsdp_config: {a: 1}, 'NO': x}").unwrap();
    assert_eq!(file.to_value(), expected.to_value());
}

#[test]
fn the_name_says_the_format() {
    let text = b"{\"a\": 1e8}";
    let kind = |name| read(name, text).unwrap().entries.remove(0).value.kind;
    assert_eq!(kind("c.json"), NodeKind::Float(1e8));
    assert_eq!(kind("c.yaml"), NodeKind::Text("1e8".to_owned()));
    let error = read("c.json", b"a: 1\n").unwrap_err();
    assert_eq!(error.line(), Some(1), "{error}");
}

#[test]
fn json_under_another_name_may_hold_surrogate_pairs() {
    let file = read("c.yaml", br#" {"a": "\ud83d\ude00"}"#).unwrap();
    assert_eq!(file.entries[0].value.kind, NodeKind::Text("😀".to_owned()));
    // If it is neither, the mistake is that of the YAML.
    let error = read("c.yaml", b"{\n\"a\": [}").unwrap_err();
    assert!(matches!(error, ConfigError::Syntax { .. }), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = RawFile::read("/nowhere/train.yaml").unwrap_err();
    assert_eq!(
        error.to_string(),
        "config file `/nowhere/train.yaml` does not exist"
    );
    assert!(error.hint().unwrap().contains("accelerate config"));
}

#[test]
fn a_folder_is_unreadable_and_keeps_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let error = RawFile::read(folder.path()).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    assert!(error.source().is_some());
}

#[test]
fn an_empty_file_says_so() {
    for text in [
        "",
        "\n\n",
        "\u{feff}",
        "# only a comment\n",
        "---\n",
        "null\n",
    ] {
        let error = read("c.yaml", text.as_bytes()).unwrap_err();
        assert!(
            matches!(error, ConfigError::Empty { .. }),
            "{text:?}: {error}"
        );
    }
    assert!(matches!(
        read("c.json", b" "),
        Err(ConfigError::Empty { .. })
    ));
    assert!(read("c.yaml", b"{}").unwrap().entries.is_empty());
}

#[test]
fn other_values_than_a_map_say_what_they_are() {
    let error = read("c.yaml", b"- a\n").unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("expected `key: value` lines, found a list"),
        "{error}"
    );
    let error = read("c.yaml", b"num_processes 4\n").unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("found the text `num_processes 4`"),
        "{error}"
    );
}

#[test]
fn a_key_that_stands_twice_names_both_lines() {
    for (name, text) in [
        ("c.yaml", "a: 1\nb: 2\na: 3\n"),
        ("c.json", "{\"a\": 1,\n\"b\": 2,\n\"a\": 3}"),
    ] {
        let error = read(name, text.as_bytes()).unwrap_err();
        let ConfigError::Duplicate {
            ref key,
            line,
            first_line,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((key.as_str(), line, first_line), ("a", 3, 1));
        assert!(
            error.to_string().contains(&format!("{name}:3`: key `a`")),
            "{error}"
        );
    }
}

#[test]
fn a_mistake_names_file_line_and_column() {
    let error = RawFile::parse("train.yaml", "a: 1\nb: *none\n").unwrap_err();
    assert!(
        error.to_string().starts_with("`train.yaml:2`, column 4: "),
        "{error}"
    );
    assert_eq!(error.hint().as_deref(), Some("correct line 2 of the file"));
}

#[test]
fn bytes_that_are_no_text_have_a_place() {
    let error = read("c.yaml", b"a: 1\nb: \xc3\xa4\xff\n").unwrap_err();
    let ConfigError::Syntax { error, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(
        (error.line, error.column, error.problem),
        (2, 5, Problem::NotUtf8)
    );
}

#[cfg(unix)]
#[test]
fn a_file_without_end_is_too_large() {
    let error = RawFile::read("/dev/zero").unwrap_err();
    assert!(
        matches!(error, ConfigError::TooLarge { limit: LIMIT, .. }),
        "{error}"
    );
}
