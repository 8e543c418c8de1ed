use proptest::prelude::*;

use super::*;
use crate::config::{json, yaml::parse};

/// Texts in which grammar, folding and escaping meet.
fn text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "a",
        "word",
        "no",
        "1",
        "1e8",
        "~",
        "-",
        "?",
        ":",
        "#",
        "---",
        "...",
        "<<",
        "=",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r",
        "'",
        "\"",
        "\\",
        ": ",
        " #",
        ", ",
        "[",
        "]",
        "{",
        "}",
        "&",
        "*",
        "!",
        "|",
        ">",
        "%",
        "@",
        "`",
        "\0",
        "\u{7f}",
        "\u{85}",
        "\u{a0}",
        "\u{2028}",
        "\u{feff}",
        "é",
        "日",
        "😀",
        "2001-01-01",
        "a-word-that-takes-much-of-a-line",
    ]);
    let made = prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat());
    prop_oneof![3 => made, 1 => any::<String>()]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO)
            .prop_map(Value::Float),
        text().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|entries| Value::Map(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in value()) {
        let written = write(&value);
        let read = parse(&written).map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
        prop_assert_eq!(read.to_value(), value, "{}", written);
    }

    #[test]
    fn what_is_written_as_json_reads_back(value in value()) {
        let written = json::write(&value);
        let read = json::parse(&written).map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
        prop_assert_eq!(read.to_value(), value, "{}", written);
    }
}

#[test]
fn a_config_file_looks_as_the_original_writes_it() {
    let entries = [
        ("tpu_env", Value::List(Vec::new())),
        ("distributed_type", Value::from("NO")),
        ("num_processes", Value::from(1_i64)),
        (
            "commands",
            Value::List(vec![Value::from("a"), Value::from("")]),
        ),
        ("use_cpu", Value::from(false)),
        ("learning_rate", Value::from(1e-5)),
        ("fp8_config", Value::Map(IndexMap::new())),
    ];
    let entries = entries.map(|(key, value)| (key.to_owned(), value));
    let section = Value::Map(IndexMap::from([("x".to_owned(), Value::Null)]));
    let mut entries = IndexMap::from(entries);
    entries.insert("section".to_owned(), section);
    let expected = "commands:\n- a\n- ''\ndistributed_type: 'NO'\nfp8_config: {}\n\
                    learning_rate: 1.0e-05\nnum_processes: 1\nsection:\n  x: null\ntpu_env: []\n\
                    use_cpu: false\n";
    assert_eq!(write(&Value::Map(entries)), expected);
}

#[test]
fn levels_that_open_together_share_a_line() {
    let inner = Value::List(vec![Value::from(1_i64), Value::from(2_i64)]);
    let list = Value::List(vec![inner.clone(), inner.clone()]);
    assert_eq!(write(&list), "- - 1\n  - 2\n- - 1\n  - 2\n");
    let map = Value::Map(IndexMap::from([("a".to_owned(), inner.clone())]));
    assert_eq!(write(&Value::List(vec![map])), "- a:\n  - 1\n  - 2\n");
    let unnamed = Value::Map(IndexMap::from([(String::new(), inner)]));
    assert_eq!(write(&unnamed), "? ''\n: - 1\n  - 2\n");
}
