use super::*;
use crate::config::Value;

fn map(text: &str) -> Vec<(Node, Node)> {
    match parse(text).unwrap().kind {
        NodeKind::Map(entries) => entries,
        other => panic!("expected a map, found {other:?}"),
    }
}

fn value(text: &str) -> Value {
    parse(text).unwrap().to_value()
}

fn problem(text: &str) -> (usize, Problem) {
    let error = parse(text).unwrap_err();
    (error.line, error.problem)
}

#[test]
fn keys_and_values_know_their_place() {
    let entries = map("# first\na: 1\nb:\n  c: [x,\n    'y']\nd:\n- e\n- f: g\n");
    let places = |node: &Node| (node.line, node.column);
    assert_eq!(places(&entries[0].0), (2, 1));
    assert_eq!(places(&entries[0].1), (2, 4));
    assert_eq!(places(&entries[1].0), (3, 1));
    assert_eq!(places(&entries[1].1), (4, 3));
    let (NodeKind::Map(inner), NodeKind::List(items)) = (&entries[1].1.kind, &entries[2].1.kind)
    else {
        panic!("expected a map and a list");
    };
    assert_eq!(places(&inner[0].1), (4, 6));
    let NodeKind::List(letters) = &inner[0].1.kind else {
        panic!("expected a list");
    };
    assert_eq!(places(&letters[1]), (5, 5));
    assert_eq!(places(&items[1]), (8, 3));
}

#[test]
fn a_value_that_is_left_out_stands_where_its_key_stands() {
    let entries = map("a:\n\n\nb: 1\n");
    assert_eq!(entries[0].1.kind, NodeKind::Null);
    assert_eq!((entries[0].1.line, entries[0].1.column), (1, 1));
    let [(_, section)] = &map("s:\n  a:\n# end\n")[..] else {
        panic!("expected one entry");
    };
    assert_eq!(section.line, 2);
}

#[test]
fn quotes_make_a_text() {
    assert_eq!(value("'no'"), Value::from("no"));
    assert_eq!(value("\"1\""), Value::from("1"));
    assert_eq!(value("|\n  no\n"), Value::from("no\n"));
    assert_eq!(value("no"), Value::from(false));
}

#[test]
fn unquoted_keys_keep_their_spelling() {
    let Value::Map(entries) = value("NO: 1\n1_0: 2\n~: 3\n") else {
        panic!("expected a map");
    };
    assert_eq!(entries.keys().collect::<Vec<_>>(), ["NO", "1_0", "~"]);
}

#[test]
fn tags_of_plain_data_are_followed() {
    assert_eq!(value("!!str 12"), Value::from("12"));
    assert_eq!(value("!!int '3'"), Value::from(3_i64));
    assert_eq!(value("!!float 3"), Value::from(3.0));
    assert_eq!(value("!!bool 'yes'"), Value::from(true));
    assert_eq!(value("!!null x"), Value::Null);
    assert_eq!(value("!!seq [!!map {}]"), value("[{}]"));
    assert_eq!(value("! 12"), Value::from(12_i64));
    assert_eq!(value("!<tag:yaml.org,2002:str> 12"), Value::from("12"));
}

#[test]
fn other_tags_are_refused() {
    for text in [
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system ''",
        "a: !mine 1",
        "a: !!set {b}",
        "a: !!binary aGk=",
        "a: !!map [1]",
    ] {
        let (line, problem) = problem(text);
        assert!(
            matches!(problem, Problem::UnknownTag { .. }),
            "{text}: {problem:?}"
        );
        assert_eq!(line, 1);
    }
    assert!(matches!(problem("!!bool ja").1, Problem::WrongTag { .. }));
    assert!(matches!(problem("!!int 1.5").1, Problem::WrongTag { .. }));
}

#[test]
fn the_same_key_twice_names_both_lines() {
    for text in ["a: 1\nb: 2\na: 3\n", "a: 1\nb: 2\n'a': 3\n"] {
        let key = "a".to_owned();
        assert_eq!(
            problem(text),
            (3, Problem::DuplicateKey { key, first_line: 1 })
        );
    }
    let key = "b".to_owned();
    let inner = problem("a:\n  b: 1\n  b: 2\n");
    assert_eq!(inner, (3, Problem::DuplicateKey { key, first_line: 2 }));
    assert_eq!(
        value("a: {x: 1}\nb: {x: 1}").to_owned(),
        value("{b: {x: 1}, a: {x: 1}}")
    );
}

#[test]
fn aliases_stand_for_what_they_name() {
    let entries = map("a: &x\n  b: 1\nc: *x\n");
    assert_eq!(entries[1].1.to_value(), value("b: 1"));
    assert_eq!(entries[1].1.line, 3);
}

#[test]
fn merges_give_what_the_map_does_not_say_itself() {
    let text = "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\n\
                one: {<<: *base, a: 9}\ntwo: {a: 9, <<: [*base, *other]}\n";
    let Value::Map(entries) = value(text) else {
        panic!("expected a map");
    };
    assert_eq!(entries["one"], value("{a: 9, b: 2}"));
    assert_eq!(entries["two"], value("{a: 9, b: 2, c: 4}"));
    // Only the sign itself merges.
    assert_eq!(map("'<<': {a: 1}")[0].0.text().unwrap(), "<<");
    for text in ["{<<: 1}", "{<<: [{a: 1}, x]}", "<<: [[{}]]"] {
        assert!(
            matches!(problem(text).1, Problem::NothingToMerge { .. }),
            "{text}"
        );
    }
}

#[test]
fn aliases_of_aliases_come_to_an_end() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let names = format!("*a{}, ", level - 1).repeat(10);
        text += &format!("a{level}: &a{level} [{names}]\n");
    }
    let (line, problem) = problem(&text);
    assert_eq!(problem, Problem::TooLarge);
    assert!(line < 12, "{line}");
}

#[test]
fn aliases_of_a_long_text_come_to_an_end() {
    let text = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(100_000),
        "*a, ".repeat(1000)
    );
    assert_eq!(problem(&text), (2, Problem::TooLarge));
}

#[test]
fn a_value_cannot_contain_itself() {
    for text in ["&a [*a]", "a: &a\n  b: *a\n", "&a {<<: *a}"] {
        assert_eq!(problem(text).1, Problem::EndlessAlias, "{text}");
    }
}

#[test]
fn nesting_has_an_end() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(problem(&nested(MAX_DEPTH + 1)).1, Problem::TooDeep);
    assert!(parse(&nested(100_000)).is_err());
    assert!(parse(&"- ".repeat(10_000)).is_err());
    // Deep only because of aliases.
    let mut text = format!("- &a0 {}\n", nested(40));
    for level in 1..4 {
        let (open, close) = ("[".repeat(10), "]".repeat(10));
        text += &format!("- &a{level} {open}*a{}{close}\n", level - 1);
    }
    assert_eq!(problem(&text), (4, Problem::TooDeep));
}

#[test]
fn lists_and_maps_are_no_keys() {
    for text in ["? [a]\n: 1\n", "{{a: 1}: 2}"] {
        assert!(
            matches!(problem(text).1, Problem::KeyNotScalar { .. }),
            "{text}"
        );
    }
}

#[test]
fn there_is_one_document() {
    assert_eq!(parse("").unwrap().kind, NodeKind::Null);
    assert_eq!(parse("# nothing\n---\n...\n").unwrap().kind, NodeKind::Null);
    assert_eq!(value("%YAML 1.1\n---\na: 1\n...\n"), value("a: 1"));
    assert_eq!(
        problem("---\na: 1\n---\nb: 2\n"),
        (3, Problem::SecondDocument)
    );
}

#[test]
fn mistakes_of_grammar_have_their_place() {
    for (text, line) in [
        ("a: 1\nb: [1, 2\nc: 3\n", 3),
        ("a: 1\n  b: 2\n", 2),
        ("a: 'x\n", 1),
        ("a: *none\n", 1),
        ("a: 1\nb: @x\n", 2),
        ("a: 1\n\tb: 2\n", 2),
        ("a: \"\\q\"\n", 1),
    ] {
        let (found, problem) = problem(text);
        assert!(
            matches!(problem, Problem::Malformed { .. }),
            "{text}: {problem:?}"
        );
        assert!(
            found.abs_diff(line) <= 1,
            "{text:?}: line {found}: {problem}"
        );
    }
}

#[test]
fn a_missing_colon_is_shown_on_its_own_line() {
    for (text, line, words) in [
        (
            "a: 1\nnum_processes 4\n\n# x\nb: 2\n",
            2,
            "expected `key: value`, found `num_processes 4`",
        ),
        (
            "a: 1\nnum_processes:4\nb: 2\n",
            2,
            "expected `key: value`, found `num_processes:4` (a space must follow the colon)",
        ),
        ("a: 1\nb", 2, "expected `key: value`, found `b`"),
        ("a:\n  b: 1\n  c\n", 3, "expected `key: value`, found `c`"),
    ] {
        let (found, problem) = problem(text);
        assert_eq!(
            (found, problem.to_string().as_str()),
            (line, words),
            "{text:?}"
        );
    }
}

#[test]
fn control_characters_are_refused() {
    let error = parse("a: 1\nb: x\u{1b}[31m\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2, column 5: expected text, found the control character U+001B"
    );
    assert!(parse("a: x\ty\u{85}\r\n").is_ok());
}

#[test]
fn a_byte_order_mark_and_other_line_ends_are_fine() {
    assert_eq!(
        value("\u{feff}a: 1\r\nb:\r\n- x\r\n"),
        value("{a: 1, b: [x]}")
    );
}

/// What `config default` of the original leaves under the name of a YAML file.
#[test]
fn json_is_yaml() {
    let text = "{\n  \"compute_environment\": \"LOCAL_MACHINE\",\n  \"fp8_config\": {},\n  \
                \"num_processes\": 2,\n  \"tpu_env\": [],\n  \"use_cpu\": false,\n  \"x\": null\n}\n";
    assert_eq!(
        value(text),
        crate::config::json::parse(text).unwrap().to_value()
    );
}
