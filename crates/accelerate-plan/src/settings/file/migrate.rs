//! Keys that older versions wrote, as they are written today.

use super::Notice;
use crate::config::{Entry, Node, NodeKind, RawFile};

/// Rewrites what older versions wrote, and says so.
pub(super) fn migrate(mut raw: RawFile) -> (RawFile, Vec<Notice>) {
    let mut notices = Vec::new();
    half_precision(&mut raw, &mut notices);
    compiler(&mut raw, &mut notices);
    tpu(&mut raw, &mut notices);
    intel(&raw, &mut notices);
    (raw, notices)
}

/// `fp16: true` was the only precision there was.
fn half_precision(raw: &mut RawFile, notices: &mut Vec<Notice>) {
    let Some(entry) = take(raw, "fp16") else {
        return;
    };
    let is_on = matches!(entry.value.kind, NodeKind::Bool(true));
    let has_newer = raw.get("mixed_precision").is_some();
    let understood = match (is_on, has_newer) {
        (_, true) => "ignored, because `mixed_precision` says it",
        (true, false) => "understood as `mixed_precision: fp16`",
        (false, false) => "understood as `mixed_precision: no`",
    };
    notices.push(notice(&entry, understood));
    if !has_newer {
        let name = if is_on { "fp16" } else { "no" };
        raw.entries.push(renamed(
            &entry,
            "mixed_precision",
            NodeKind::Text(name.to_owned()),
        ));
    }
}

/// `dynamo_backend` stood on the top level.
fn compiler(raw: &mut RawFile, notices: &mut Vec<Notice>) {
    let Some(entry) = take(raw, "dynamo_backend") else {
        return;
    };
    notices.push(notice(
        &entry,
        "understood as `dynamo_config: {dynamo_backend: ...}`",
    ));
    if raw.get("dynamo_config").is_none() {
        let key = Node::new(NodeKind::Text("dynamo_backend".to_owned()), entry.line, 1);
        let inner = NodeKind::Map(vec![(key, entry.value.clone())]);
        raw.entries.push(renamed(&entry, "dynamo_config", inner));
    }
}

/// `TPU` was a kind of job.
fn tpu(raw: &mut RawFile, notices: &mut Vec<Notice>) {
    let kind = raw
        .entries
        .iter_mut()
        .find(|entry| entry.key == "distributed_type");
    if let Some(entry) = kind
        && entry.value.kind == NodeKind::Text("TPU".to_owned())
    {
        notices.push(notice(entry, "`TPU` is understood as `XLA`"));
        entry.value.kind = NodeKind::Text("XLA".to_owned());
    }
}

/// Intel's extension became part of PyTorch.
fn intel(raw: &RawFile, notices: &mut Vec<Notice>) {
    if let Some(entry) = raw.get("ipex_config")
        && !entry.value.to_value().is_absent()
    {
        notices.push(notice(
            entry,
            "has no effect any more: PyTorch does it by itself",
        ));
    }
}

fn take(raw: &mut RawFile, key: &str) -> Option<Entry> {
    let index = raw.entries.iter().position(|entry| entry.key == key)?;
    Some(raw.entries.remove(index))
}

fn renamed(entry: &Entry, key: &str, kind: NodeKind) -> Entry {
    let value = Node::new(kind, entry.value.line, entry.value.column);
    Entry {
        key: key.to_owned(),
        line: entry.line,
        value,
    }
}

fn notice(entry: &Entry, understood: &str) -> Notice {
    Notice {
        line: entry.line,
        text: format!("`{}`: {understood}", entry.key),
    }
}
