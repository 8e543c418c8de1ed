//! Settings as the text that ClearML shows.

use crate::value::{Value, Values};

/// One line for each value: `a = 1`, and braces around nested ones.
pub(super) fn document(values: &Values) -> String {
    let mut text = String::new();
    map(values, 0, &mut text);
    text
}

fn map(values: &Values, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for (name, value) in values.iter() {
        let name = key(name);
        match value {
            Value::Map(inner) => {
                text.push_str(&format!("{indent}{name} {{\n"));
                map(inner, depth + 1, text);
                text.push_str(&format!("{indent}}}\n"));
            }
            plain => text.push_str(&format!("{indent}{name} = {}\n", plain.to_json())),
        }
    }
}

fn key(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    Value::from(name).to_json().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_settings_stand_in_braces() {
        let values = Values::new()
            .with("a", 1)
            .with("b", false)
            .with("s", "some_value")
            .with("n.m", Values::from([("x", 1.5)]));
        assert_eq!(
            document(&values),
            "a = 1\nb = false\ns = \"some_value\"\n\"n.m\" {\n  x = 1.5\n}\n"
        );
    }
}
