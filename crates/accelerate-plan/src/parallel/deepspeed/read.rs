//! DeepSpeed's own config, wherever it comes from.

use std::path::{Path, PathBuf};

use base64::{
    Engine as _,
    engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD},
};

use super::{ConfigSource, document::Document, schema};
use crate::{
    config::{ConfigError, Node, NodeKind, RawFile, Value, json, yaml},
    parallel::PlanError,
    settings::{Origin, Sourced},
};

type Result<T, E = PlanError> = std::result::Result<T, E>;

/// Characters of a text that is no config that a message shows.
const SHOWN: usize = 60;

/// Reads DeepSpeed's config, and checks its keys.
pub(super) fn read(source: &Sourced<ConfigSource>) -> Result<(Document, Vec<String>)> {
    let (path, root) = match &source.value {
        ConfigSource::Map(value) => (PathBuf::from("<the program>"), node(value)),
        ConfigSource::Text(text) => read_text(text, &source.origin)?,
    };
    let notes = schema::check(&path, &root)?;
    match Document::of(path.clone(), &root) {
        Some(document) => Ok((document, notes)),
        None => Err(ConfigError::NotAMap {
            found: root.describe(),
            path,
        }
        .into()),
    }
}

/// A file if there is one, else JSON, else JSON as base64.
fn read_text(text: &str, origin: &Origin) -> Result<(PathBuf, Node)> {
    let path = Path::new(text);
    if path.is_file() {
        return read_file(path);
    }
    if text.trim_start().starts_with('{') {
        return parse(PathBuf::from(format!("<{origin}>")), text);
    }
    let bytes = URL_SAFE
        .decode(text)
        .or_else(|_| URL_SAFE_NO_PAD.decode(text));
    let decoded = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some(decoded) = decoded.filter(|decoded| decoded.trim_start().starts_with('{')) {
        return parse(PathBuf::from(format!("<{origin}>")), &decoded);
    }
    // Whoever writes a path means a path.
    if text.ends_with(".json") || text.contains('/') {
        return read_file(path);
    }
    Err(PlanError::NoConfig {
        found: text.chars().take(SHOWN).collect(),
        origin: origin.clone(),
    })
}

fn read_file(path: &Path) -> Result<(PathBuf, Node)> {
    let raw = RawFile::read(path).or_else(|error| forgiven(path, error))?;
    let entries = raw.entries.into_iter().map(|entry| {
        let key = Node::new(NodeKind::Text(entry.key), entry.line, 1);
        (key, entry.value)
    });
    let root = Node::new(NodeKind::Map(entries.collect()), 1, 1);
    Ok((raw.path, root))
}

/// A file that is JSON but for a comma is YAML.
fn forgiven(path: &Path, error: ConfigError) -> Result<RawFile, ConfigError> {
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    if !matches!(error, ConfigError::Syntax { .. }) || !is_json {
        return Err(error);
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let is_map = text.trim_start().starts_with('{');
    // Under another name the same text is read as YAML, and keeps the path for messages.
    let parsed = RawFile::parse(path.with_extension("yaml"), &text);
    match parsed {
        Ok(raw) if is_map => Ok(RawFile {
            path: path.to_owned(),
            ..raw
        }),
        _ => Err(error),
    }
}

fn parse(path: PathBuf, text: &str) -> Result<(PathBuf, Node)> {
    let parsed = json::parse(text).or_else(|error| yaml::parse(text).map_err(|_| error));
    match parsed {
        Ok(root) => Ok((path, root)),
        Err(error) => Err(ConfigError::Syntax { path, error }.into()),
    }
}

/// Plain data as a tree without places.
fn node(value: &Value) -> Node {
    let kind = match value {
        Value::Null => NodeKind::Null,
        Value::Bool(value) => NodeKind::Bool(*value),
        Value::Int(number) => NodeKind::Int(*number),
        Value::Float(number) => NodeKind::Float(*number),
        Value::Text(text) => NodeKind::Text(text.clone()),
        Value::List(items) => NodeKind::List(items.iter().map(node).collect()),
        Value::Map(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (node(&key.as_str().into()), node(value)));
            NodeKind::Map(entries.collect())
        }
    };
    Node::new(kind, 0, 0)
}
