//! DeepSpeed's config as a tree that is filled in, with where each value came from.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use indexmap::IndexMap;

use crate::{
    config::{Node, NodeKind, Value, inline_json, python_float},
    env::{
        Format,
        format::{FLAG, WHOLE},
    },
    parallel::{PlanError, UnresolvedAuto},
    settings::Origin,
};

type Result<T> = std::result::Result<T, PlanError>;

/// DeepSpeed's config. Keys inside of maps are told with dots between: `zero_optimization.stage`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    path: Arc<PathBuf>,
    root: IndexMap<String, Value>,
    lines: BTreeMap<String, usize>,
    filled: BTreeMap<String, Origin>,
}

impl Document {
    /// A config without a file.
    pub(super) fn empty() -> Self {
        Self {
            path: Arc::default(),
            root: IndexMap::new(),
            lines: BTreeMap::new(),
            filled: BTreeMap::new(),
        }
    }

    /// The config that was read from a file or text; [`None`] if it is no map.
    pub(super) fn of(path: PathBuf, root: &Node) -> Option<Self> {
        let Value::Map(entries) = root.to_value() else {
            return None;
        };
        let mut lines = BTreeMap::new();
        note_lines("", root, &mut lines);
        Some(Self {
            path: Arc::new(path),
            root: entries,
            lines,
            filled: BTreeMap::new(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn root(&self) -> &IndexMap<String, Value> {
        &self.root
    }

    /// The value of a key; `null` counts as nothing.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let (parents, last) = split(key);
        let value = self.map(parents)?.get(last)?;
        (*value != Value::Null).then_some(value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn is_auto(&self, key: &str) -> bool {
        self.get(key).is_some_and(is_auto)
    }

    /// Where the value of a key came from.
    pub(super) fn origin(&self, key: &str) -> Origin {
        if let Some(origin) = self.filled.get(key) {
            return origin.clone();
        }
        match self.lines.get(key) {
            // A map that the program gave has no lines.
            Some(0) => Origin::Program,
            Some(line) => Origin::File {
                path: Arc::clone(&self.path),
                line: *line,
            },
            None => Origin::Default,
        }
    }

    /// Gives a key a value, and makes the maps that it belongs into if they are not there.
    pub(super) fn set(&mut self, key: &str, value: Value, origin: Origin) {
        let (parents, last) = split(key);
        let mut map = &mut self.root;
        for part in parents.into_iter().flat_map(|parents| parents.split('.')) {
            let inner = map.entry(part.to_owned()).or_default();
            if !matches!(inner, Value::Map(_)) {
                *inner = Value::Map(IndexMap::new());
            }
            let Value::Map(inner) = inner else {
                return;
            };
            map = inner;
        }
        map.insert(last.to_owned(), value);
        self.filled.insert(key.to_owned(), origin);
    }

    /// Every key that is `auto`, in order.
    pub(super) fn autos(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect_autos("", &self.root, &mut found);
        found
    }

    /// Keys of a map inside of the config, in order.
    pub(super) fn keys(&self, map: &str) -> Vec<String> {
        let map = self.map(Some(map));
        map.map_or_else(Vec::new, |map| map.keys().cloned().collect())
    }

    /// A whole number, however it is written: `2e8`, `"8"`.
    ///
    /// # Errors
    /// [`PlanError::Value`], and [`PlanError::Unresolved`] for `auto`.
    pub(super) fn whole(&self, key: &str, otherwise: u64) -> Result<u64> {
        self.read(key, "a whole number, at least 0", whole)
            .map(|found| found.unwrap_or(otherwise))
    }

    /// A number.
    ///
    /// # Errors
    /// As [`Document::whole`].
    pub(super) fn number(&self, key: &str, otherwise: f64) -> Result<f64> {
        self.read(key, "a number", number)
            .map(|found| found.unwrap_or(otherwise))
    }

    /// A truth value.
    ///
    /// # Errors
    /// As [`Document::whole`].
    pub(super) fn flag(&self, key: &str, otherwise: bool) -> Result<bool> {
        self.read(key, "`true` or `false`", flag)
            .map(|found| found.unwrap_or(otherwise))
    }

    /// A text.
    ///
    /// # Errors
    /// As [`Document::whole`].
    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        self.read(key, "a text", |value| match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// The typed value of a key; [`None`] if it is not there.
    pub(super) fn read<T>(
        &self,
        key: &str,
        expected: &str,
        typed: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        if is_auto(value) {
            return Err(PlanError::Unresolved {
                keys: vec![UnresolvedAuto {
                    key: key.to_owned(),
                    origin: self.origin(key),
                    needs: "a number, because nothing else says it",
                }],
            });
        }
        match typed(value) {
            Some(typed) => Ok(Some(typed)),
            None => Err(self.refuse(key, expected)),
        }
    }

    /// The error for the value of a key.
    pub(super) fn refuse(&self, key: &str, expected: impl Into<String>) -> PlanError {
        PlanError::Value {
            key: key.to_owned(),
            found: self.get(key).map_or_else(|| "nothing".to_owned(), inline_json),
            expected: expected.into(),
            origin: self.origin(key),
        }
    }

    fn map(&self, parents: Option<&str>) -> Option<&IndexMap<String, Value>> {
        let mut map = &self.root;
        for part in parents.into_iter().flat_map(|parents| parents.split('.')) {
            match map.get(part)? {
                Value::Map(inner) => map = inner,
                _ => return None,
            }
        }
        Some(map)
    }
}

/// Whether a value is to be found out.
pub(super) fn is_auto(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text == "auto")
}

/// A whole number that is not negative.
pub(super) fn whole(value: &Value) -> Option<u64> {
    of_format(&WHOLE, value)
}

/// A number; a text that is one counts.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Text(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (!number.is_nan()).then_some(number)
}

/// A truth value, or a word for one.
pub(super) fn flag(value: &Value) -> Option<bool> {
    of_format(&FLAG, value)
}

fn of_format<T>(format: &Format<T>, value: &Value) -> Option<T> {
    let text = match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => python_float(*number),
        Value::Text(text) => text.trim().to_owned(),
        _ => return None,
    };
    (format.parse)(&text).ok()
}

/// A key in its map: the map, if it is not the outermost one, and the key's own name.
fn split(key: &str) -> (Option<&str>, &str) {
    match key.rsplit_once('.') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, key),
    }
}

/// The name of a key inside of a map.
pub(super) fn dotted(map: &str, key: &str) -> String {
    match map.is_empty() {
        true => key.to_owned(),
        false => format!("{map}.{key}"),
    }
}

fn note_lines(map: &str, node: &Node, lines: &mut BTreeMap<String, usize>) {
    let NodeKind::Map(entries) = &node.kind else {
        return;
    };
    for (key, value) in entries {
        let name = dotted(map, &key.text().unwrap_or_default());
        note_lines(&name, value, lines);
        lines.insert(name, key.line);
    }
}

fn collect_autos(map: &str, entries: &IndexMap<String, Value>, found: &mut Vec<String>) {
    for (key, value) in entries {
        let name = dotted(map, key);
        match value {
            Value::Map(inner) => collect_autos(&name, inner, found),
            value if is_auto(value) => found.push(name),
            _ => {}
        }
    }
}
