//! What a person reads of a listing.

use std::fmt::Write as _;

use accelerate_plan::size_text::Size;

use super::{entry::Entry, listing::Listing};
use crate::weights::count;

/// How many values that are no tensors are shown before they are only counted.
const VALUES_LISTED: usize = 20;

/// The text for stdout; without the tensors one by one if only a summary is wanted.
pub(super) fn text(listing: &Listing, summary: bool) -> String {
    let mut text = String::new();
    show(&mut text, listing, summary);
    text
}

// Writing to a `String` cannot fail.
fn show(text: &mut String, listing: &Listing, summary: bool) {
    let _ = writeln!(text, "{}: {}", listing.path, described(listing));
    if let Some(problem) = &listing.problem {
        let _ = writeln!(text, "  problem: {problem}");
    }
    if let Some(manifest) = &listing.manifest {
        let _ = writeln!(
            text,
            "  saved by {} on {} processes, iteration {}, {} files",
            manifest.program,
            manifest.num_processes,
            manifest.iteration,
            manifest.files.len()
        );
    }
    for detail in &listing.details {
        let _ = writeln!(text, "  {}: {}", detail.name, detail.value);
    }
    for (key, value) in &listing.metadata {
        let _ = writeln!(text, "  metadata {key}: {value}");
    }
    for tie in &listing.tied {
        let _ = writeln!(text, "  {} is tied to {}", tie.name, tie.tied_to);
    }
    if !listing.dtypes.is_empty() {
        let rows = listing.dtypes.iter().map(|sum| {
            [
                sum.dtype.to_owned(),
                sum.tensors.to_string(),
                sum.elements.to_string(),
                sum.bytes.to_string(),
            ]
        });
        table(
            text,
            ["dtype", "tensors", "elements", "bytes"],
            rows.collect(),
        );
    }
    if !summary && !listing.tensors.is_empty() {
        let rows = listing.tensors.iter().map(row).collect();
        table(
            text,
            ["name", "dtype", "shape", "bytes", "file", "offset"],
            rows,
        );
    }
    if !summary {
        values(text, listing);
    }
    for member in &listing.members {
        let _ = writeln!(text);
        show(text, member, summary);
    }
}

fn described(listing: &Listing) -> String {
    let format = match listing.format {
        "safetensors" => "a safetensors file",
        "torch" => "a file of `torch.save`",
        "index" => "weights by an index",
        "weights" => "a folder of weights",
        "distributed" => "a distributed checkpoint",
        "zero" => "a DeepSpeed checkpoint",
        "offload" => "a folder of offloaded weights",
        other => other,
    };
    if !listing.members.is_empty() {
        return format!(
            "{format} of {} files and folders ({})",
            listing.members.len(),
            Size::Whole(listing.total_bytes)
        );
    }
    format!(
        "{format}, {}",
        count(listing.tensors.len(), "tensor", listing.total_bytes)
    )
}

fn row(tensor: &Entry) -> [String; 6] {
    let file = match (&tensor.file, tensor.parts.len()) {
        (Some(file), _) => file.clone(),
        (None, 0) => String::new(),
        (None, parts) => format!("{parts} parts"),
    };
    let offset = match (tensor.offset, tensor.parts.as_slice()) {
        (Some(offset), _) => offset.to_string(),
        (None, [only]) => only.offset.to_string(),
        (None, _) => String::new(),
    };
    let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
    [
        tensor.name.clone(),
        tensor.dtype.to_owned(),
        format!("[{}]", shape.join(", ")),
        tensor.bytes.to_string(),
        file,
        offset,
    ]
}

fn values(text: &mut String, listing: &Listing) {
    for value in listing.values.iter().take(VALUES_LISTED) {
        let _ = writeln!(text, "  {} = {}", value.name, value.value);
    }
    let more = listing.values.len().saturating_sub(VALUES_LISTED);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more values; `--json` has all");
    }
}

/// Columns as wide as their longest text, two spaces apart.
fn table<const N: usize>(text: &mut String, headers: [&str; N], rows: Vec<[String; N]>) {
    let mut widths = headers.map(|header| header.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let _ = writeln!(text);
    for row in std::iter::once(headers.map(str::to_owned)).chain(rows) {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
}
