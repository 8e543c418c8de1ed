//! The report for programs.

use accelerate_plan::config::Value;
use indexmap::IndexMap;
use serde_json::{Number, Value as Json, json};

use super::facts::Facts;
use crate::machine::Bf16;

/// One object, with a line break at its end. What is not found is `null`.
pub(super) fn render(facts: &Facts, config: Option<&IndexMap<String, Value>>) -> String {
    let devices = &facts.devices;
    let names: Vec<_> = devices.usable.iter().map(|device| &device.name).collect();
    let python = facts.python.as_ref().map(|python| {
        json!({ "version": python.version, "executable": python.executable.display().to_string() })
    });
    let libtorch = facts.libtorch.as_ref().map(|libtorch| {
        json!({ "version": libtorch.version, "folder": libtorch.folder.display().to_string() })
    });
    let visible = devices
        .visible
        .as_ref()
        .map(|visible| json!({ "variable": visible.variable, "value": visible.value }));
    let report = json!({
        "accelerate_version": env!("CARGO_PKG_VERSION"),
        "platform": facts.platform,
        "location": facts.location.as_ref().map(|path| path.display().to_string()),
        "python": python,
        "numpy_version": facts.numpy.as_ref().map(|package| &package.version),
        "torch_version": facts.torch.as_ref().map(|torch| &torch.version),
        "accelerate_python_version": facts.accelerate.as_ref().map(|package| &package.version),
        "libtorch": libtorch,
        "accelerator": facts.accelerator().ok(),
        "devices": {
            "count": devices.count(),
            "present": devices.present.len(),
            "names": names,
            "bf16": bf16(devices.bf16()),
            "visible": visible,
        },
        "cpu": { "usable": facts.cores.usable, "physical": facts.cores.physical },
        "memory": facts.memory.map(|memory| json!({
            "total_bytes": memory.total,
            "usable_bytes": memory.usable(),
        })),
        "cluster": facts.cluster,
        "config": config.map(of_map),
    });
    format!("{report:#}\n")
}

/// Whether the devices compute in bf16: at full speed, slowly, or nobody knows.
fn bf16(support: Bf16) -> Option<&'static str> {
    match support {
        Bf16::Native => Some("native"),
        Bf16::Emulated => Some("emulated"),
        Bf16::Unknown => None,
    }
}

fn of_map(entries: &IndexMap<String, Value>) -> Json {
    let entries = entries.iter();
    Json::Object(
        entries
            .map(|(key, value)| (key.clone(), of_value(value)))
            .collect(),
    )
}

fn of_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int(number) => Json::from(*number),
        // JSON has no infinity.
        Value::Float(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Text(text) => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(of_value).collect(),
        Value::Map(entries) => of_map(entries),
    }
}
