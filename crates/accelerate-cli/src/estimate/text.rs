//! The answer for a person: the table of the original first, then what it does not say.

use accelerate_plan::{MixedPrecision, size_text::Size};

use super::{
    answer::{Answer, LayerName, OnDisk, Training},
    configured::Configured,
    table::{Table, TitleFit},
};

/// How many layers are named before the rest is counted.
const NAMED: usize = 2;

/// The whole answer, with a line end.
pub(crate) fn text(answer: &Answer, explain: bool) -> String {
    let mut parts = vec![memory(answer)];
    if let Some(stored) = answer.stored.as_ref().filter(|_| answer.class.is_some()) {
        parts.push(disk(answer, stored));
    }
    if let Some(training) = &answer.training {
        parts.push(plans(answer, training));
    }
    if let Some(inference) = &answer.inference {
        parts.push(inference.text(explain));
    }
    if let Some(configured) = &answer.configured {
        parts.push(plan(configured));
    }
    parts.push(remarks(answer));
    let mut text = parts.join("\n\n");
    text.push('\n');
    text
}

fn memory(answer: &Answer) -> String {
    let cells = answer.rows.iter().map(|row| {
        let training = row
            .training
            .map_or("N/A".to_owned(), |size| size.to_string());
        let dtype = row.dtype.to_owned();
        [
            dtype,
            row.largest.to_string(),
            row.total.to_string(),
            training,
        ]
    });
    Table {
        title: format!("Memory Usage for loading `{}`", answer.model),
        fit: TitleFit::AsOriginal,
        headers: [
            "dtype",
            "Largest Layer",
            "Total Size",
            "Training using Adam",
        ],
        rows: cells.collect(),
    }
    .draw()
}

fn disk(answer: &Answer, stored: &OnDisk) -> String {
    let sums = stored.dtypes.iter().map(|sum| {
        let dtype = sum.dtype.to_owned();
        let size = Size::Whole(sum.bytes).to_string();
        [dtype, sum.tensors.to_string(), size, sum.bytes.to_string()]
    });
    let total = Size::Whole(stored.total_bytes).to_string();
    let all = [
        "total".to_owned(),
        stored.tensors.to_string(),
        total,
        stored.total_bytes.to_string(),
    ];
    Table {
        title: format!("Weights on disk of `{}`", answer.model),
        fit: TitleFit::Exact,
        headers: ["dtype", "Tensors", "Size", "Bytes"],
        rows: sums.chain([all]).collect(),
    }
    .draw()
}

fn plans(answer: &Answer, training: &Training) -> String {
    let rows = training.plans.iter().map(|usage| {
        let size = |bytes| Size::Whole(bytes).to_string();
        let precision = match usage.mixed_precision {
            // Both take two bytes.
            MixedPrecision::Bf16 | MixedPrecision::Fp16 => "bf16 / fp16",
            other => other.name(),
        };
        [
            usage.plan.label().to_owned(),
            precision.to_owned(),
            size(usage.weights_bytes),
            size(usage.copies_bytes),
            size(usage.gradients_bytes),
            size(usage.optimizer_bytes),
            size(usage.per_process_bytes),
        ]
    });
    let machines = match training.num_machines {
        1 => String::new(),
        machines => format!(" of {machines} machines"),
    };
    let processes = match training.num_processes {
        1 => "one process".to_owned(),
        processes => format!("each of {processes} processes{machines}"),
    };
    let optimizer = training.optimizer.name();
    let what = match &training.lora {
        Some(lora) => format!("adapters of rank {} of ", lora.rank),
        None => String::new(),
    };
    let title = format!(
        "Training {what}`{}` on {processes} with {optimizer}",
        answer.model
    );
    let headers = [
        "Plan",
        "Mixed Precision",
        "Weights",
        "Copies",
        "Gradients",
        "Optimizer",
        "Per Process",
    ];
    Table {
        title,
        fit: TitleFit::Exact,
        headers,
        rows: rows.collect(),
    }
    .draw()
}

/// The plan of a config file and its bytes.
fn plan(configured: &Configured) -> String {
    let mut lines = vec![format!("Plan of `{}`:", configured.config_file)];
    lines.extend(configured.plan.iter().map(|line| format!("  {line}")));
    let size = |bytes| Size::Whole(bytes).to_string();
    let parts = [
        ("weights", configured.weights_bytes),
        ("copies", configured.copies_bytes),
        ("gradients", configured.gradients_bytes),
        ("optimizer", configured.optimizer_bytes),
    ];
    let parts = parts.map(|(what, bytes)| format!("{what} {}", size(bytes)));
    let places = [
        ("on the device", configured.device_bytes),
        ("in CPU memory", configured.cpu_bytes),
        ("on disk", configured.disk_bytes),
    ];
    let places = places.into_iter().filter(|(_, bytes)| *bytes > 0);
    let places: Vec<_> = places
        .map(|(place, bytes)| format!("{} {place}", size(bytes)))
        .collect();
    lines.push(format!(
        "On each of its {} processes: {}; together {}.",
        configured.num_processes,
        parts.join(", "),
        places.join(", ")
    ));
    lines.join("\n")
}

fn remarks(answer: &Answer) -> String {
    let mut lines = vec![
        counted(answer),
        largest("Largest layer", &answer.largest_layers),
    ];
    if answer.tied_bytes > 0 {
        let saved = Size::Whole(answer.tied_bytes);
        lines.push(format!(
            "Tied weights count each time in the first table, as in the original; sharing them \
             saves {saved} in float32."
        ));
    }
    if let Some(stored) = &answer.stored {
        match answer.class {
            Some(_) => lines.push(largest("Largest block on disk", &stored.largest_layers)),
            None => lines.push(format!(
                "On disk: {} bytes ({}).",
                stored.total_bytes,
                sums(stored)
            )),
        }
    }
    if let Some(lora) = answer
        .training
        .as_ref()
        .and_then(|training| training.lora.as_ref())
    {
        lines.push(format!(
            "Trained: adapters of {} at {}, {}; the other {} stay as they are, in {}.",
            lora.target_modules.join(", "),
            count(lora.adapted_modules as u64, "module", "modules"),
            count(lora.trainable_parameters, "parameter", "parameters"),
            lora.frozen_parameters,
            lora.base_dtype
        ));
    }
    if answer.training.is_some() {
        lines.push(
            "Copies: weights in lower precision, or gathered from other processes to compute."
                .to_owned(),
        );
    }
    lines.extend(answer.notes.iter().map(|note| format!("Note: {note}.")));
    lines.push("Not counted:".to_owned());
    lines.extend(answer.not_counted.iter().map(|what| format!("  - {what}")));
    lines.join("\n")
}

fn counted(answer: &Answer) -> String {
    let found = answer
        .path
        .as_ref()
        .map_or(String::new(), |path| format!(" from `{path}`"));
    match &answer.class {
        Some(class) => format!(
            "Counted: {class}{found}, {}.",
            count(answer.parameters, "parameter", "parameters")
        ),
        None => format!(
            "Counted: the tensors{found}, {}.",
            count(answer.parameters, "element", "elements")
        ),
    }
}

fn sums(stored: &OnDisk) -> String {
    let sums = stored.dtypes.iter();
    let sums = sums.map(|sum| format!("{} {}", sum.dtype, Size::Whole(sum.bytes)));
    sums.collect::<Vec<_>>().join(", ")
}

fn largest(what: &str, names: &[LayerName]) -> String {
    let several = if names.len() > 1 { "s" } else { "" };
    format!("{what}{several}: {}.", layers(names))
}

fn layers(layers: &[LayerName]) -> String {
    let name = |layer: &LayerName| match &layer.class {
        Some(class) => format!("`{}` ({class})", layer.name),
        None => format!("`{}`", layer.name),
    };
    let mut named: Vec<String> = layers.iter().take(NAMED).map(name).collect();
    match layers.len() {
        0 => "none".to_owned(),
        more if more > NAMED => {
            named.push(format!("{} more of the same size", more - NAMED));
            named.join(", ")
        }
        _ => named.join(", "),
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
