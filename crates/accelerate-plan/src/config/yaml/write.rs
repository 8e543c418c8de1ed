//! Writes a value as PyYAML's `safe_dump` does with its defaults.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::{
    page::Page,
    text::{Place, write_plain, write_text},
};
use crate::config::{Value, python_float};

/// How far a level is indented.
const STEP: usize = 2;

/// A key of this many characters, or a longer one, stands on a line of its own behind a `?`.
const LONG_KEY: usize = 123;

/// Writes a value in block style with sorted keys, as the original does.
///
/// The text reads back as the same value, by [`parse`](super::parse()) and by PyYAML.
pub fn write(value: &Value) -> String {
    let mut page = Page::new();
    write_node(&mut page, value, None, false);
    page.end()
}

/// Writes a value inside a list or map that begins at column `indent`, or the whole document.
/// `entry` says that the value belongs to a key.
fn write_node(page: &mut Page, value: &Value, indent: Option<usize>, entry: bool) {
    let deeper = indent.map_or(0, |indent| indent + STEP);
    match value {
        Value::List(items) if !items.is_empty() => {
            // The items of a key stand right below it.
            let below_key = entry && !page.is_opening();
            write_list(page, items, indent.filter(|_| below_key).unwrap_or(deeper));
        }
        Value::Map(entries) if !entries.is_empty() => write_map(page, entries, deeper),
        Value::List(_) => page.mark("[]"),
        Value::Map(_) => page.mark("{}"),
        Value::Text(text) => write_text(page, text, scalar_place(indent)),
        Value::Null => write_plain(page, "null", scalar_place(indent)),
        Value::Bool(value) => write_plain(page, &value.to_string(), scalar_place(indent)),
        Value::Int(value) => write_plain(page, &value.to_string(), scalar_place(indent)),
        Value::Float(value) => write_plain(page, &float(*value), scalar_place(indent)),
    }
}

fn scalar_place(indent: Option<usize>) -> Place {
    Place {
        indent: indent.unwrap_or(0) + STEP,
        fold: true,
        root: indent.is_none(),
    }
}

fn write_list(page: &mut Page, items: &[Value], indent: usize) {
    for item in items {
        page.begin_line(indent);
        page.opening_mark("-");
        write_node(page, item, Some(indent), false);
    }
}

fn write_map(page: &mut Page, entries: &IndexMap<String, Value>, indent: usize) {
    let sorted: BTreeMap<_, _> = entries.iter().collect();
    for (key, value) in sorted {
        page.begin_line(indent);
        let simple = is_simple(key);
        let place = Place {
            indent: indent + STEP,
            fold: !simple,
            root: false,
        };
        if simple {
            write_text(page, key, place);
            page.closing_mark(":");
        } else {
            page.opening_mark("?");
            write_text(page, key, place);
            page.begin_line(indent);
            page.opening_mark(":");
        }
        write_node(page, value, Some(indent), true);
    }
}

/// Whether a key can stand on one line with its value.
fn is_simple(key: &str) -> bool {
    let breaks = ['\n', '\u{85}', '\u{2028}', '\u{2029}'];
    !key.is_empty() && !key.contains(breaks) && key.chars().count() < LONG_KEY
}

/// A number that YAML 1.1 reads as a float: with a dot, whatever the exponent.
fn float(value: f64) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let text = python_float(value);
    match text.contains('.') {
        true => text,
        false => text.replacen('e', ".0e", 1),
    }
}

#[cfg(test)]
mod tests;
