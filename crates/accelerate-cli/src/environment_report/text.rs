//! The report as lines.

use accelerate_plan::config::Value;
use indexmap::IndexMap;

use super::{facts::Facts, python_text::config_lines};
use crate::machine::{Kind, Memory};

const NOT_FOUND: &str = "Not found";

/// The whole report. `passed` says that the user named the config file.
pub(super) fn render(
    facts: &Facts,
    passed: bool,
    config: Option<&IndexMap<String, Value>>,
) -> String {
    let mut report = "\nCopy-and-paste the text below in your GitHub issue\n\n".to_owned();
    for (name, value) in lines(facts) {
        report += &format!("- {name}: {value}\n");
    }
    report += match passed {
        true => "- `Accelerate` config passed:\n",
        false => "- `Accelerate` default config:\n",
    };
    match config {
        Some(config) => config_lines(config)
            .iter()
            .for_each(|line| report += &format!("\t{line}\n")),
        None => report += &format!("\t{NOT_FOUND}\n"),
    }
    report
}

/// The lines of the original, then those that only we have.
fn lines(facts: &Facts) -> Vec<(&'static str, String)> {
    let found = |text: Option<&str>| text.unwrap_or(NOT_FOUND).to_owned();
    let python = facts.python.as_ref();
    let numpy = facts.numpy.as_ref();
    let torch = facts.torch.as_ref();
    let location = facts.location.as_ref();
    let mut lines = vec![
        (
            "`Accelerate` version",
            format!("{} (Rust)", env!("CARGO_PKG_VERSION")),
        ),
        ("Platform", facts.platform.clone()),
        (
            "`accelerate` bash location",
            location.map_or_else(|| NOT_FOUND.to_owned(), |path| path.display().to_string()),
        ),
        (
            "Python version",
            found(python.map(|python| python.version.as_deref().unwrap_or("unknown"))),
        ),
        (
            "Numpy version",
            found(numpy.map(|numpy| numpy.version.as_str())),
        ),
        (
            "PyTorch version",
            found(torch.map(|torch| torch.version.as_str())),
        ),
        (
            "PyTorch accelerator",
            facts
                .accelerator()
                .map_or_else(|reason| reason, str::to_owned),
        ),
    ];
    lines.extend(facts.memory.map(|memory| ("System RAM", ram(memory))));
    lines.extend(device_type(facts));
    lines.extend(extra(facts));
    lines
}

fn ram(memory: Memory) -> String {
    let total = gibibytes(memory.total);
    match memory.limit {
        Some(limit) => format!("{total} (limited to {})", gibibytes(limit)),
        None => total,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "two decimals are shown, far fewer than a float holds"
)]
fn gibibytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / f64::from(1 << 30))
}

/// The model of the first device, or what stands for it.
fn device_type(facts: &Facts) -> Option<(&'static str, String)> {
    let model = facts.devices.usable.first()?.name.clone();
    let (name, value) = match facts.devices.kind? {
        Kind::Cuda | Kind::Rocm => ("GPU type", model),
        Kind::Xpu => ("XPU type", model),
        Kind::Mlu => ("MLU type", model),
        Kind::Sdaa => ("SDAA type", model),
        Kind::Musa => ("MUSA type", model),
        Kind::Neuron => ("NEURON type", model),
        Kind::Mps => ("MPS type", model),
        Kind::Npu => ("CANN version", facts.cann.clone()),
        Kind::Hpu => ("HPU type", model),
    };
    Some((name, value?))
}

fn extra(facts: &Facts) -> Vec<(&'static str, String)> {
    let devices = &facts.devices;
    let hidden = devices.visible.as_ref().map(|visible| {
        format!(
            " of {} (`{}={}`)",
            devices.present.len(),
            visible.variable,
            visible.value
        )
    });
    let lines = [
        facts
            .accelerate
            .as_ref()
            .map(|package| ("`accelerate` version in Python", package.version.clone())),
        facts.libtorch.as_ref().map(|libtorch| {
            let folder = libtorch.folder.display();
            (
                "libtorch version",
                format!("{} ({folder})", libtorch.version),
            )
        }),
        devices.kind.map(|_| {
            let hidden = hidden.unwrap_or_default();
            ("Devices", format!("{}{hidden}", devices.count()))
        }),
        facts
            .cluster
            .as_ref()
            .map(|cluster| ("Cluster manager", cluster.clone())),
    ];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
