//! The answer of `accelerate plan` for a person.

use accelerate_plan::size_text::Size;

use super::{Plan, inference::InferenceWay, training::TrainingWay};
use crate::estimate::{
    inference::map_lines,
    table::{Table, TitleFit},
};

/// The whole answer, with a line end.
pub(super) fn text(plan: &Plan, explain: bool) -> String {
    let mut parts = vec![devices(plan), running(plan), training(plan)];
    parts.extend(chosen_map(plan, explain));
    parts.push(remarks(plan));
    parts.join("\n\n") + "\n"
}

fn size(bytes: u64) -> String {
    Size::Whole(bytes).to_string()
}

/// A size, or nothing where there is none.
fn some(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        _ => size(bytes),
    }
}

fn devices(plan: &Plan) -> String {
    let places = plan.max_memory.iter();
    let places = places.map(|(place, bytes)| format!("`{place}` {}", size(bytes)));
    let places: Vec<_> = places.collect();
    let whose = match plan.detected {
        true => "Devices of this machine",
        false => "Devices of a machine",
    };
    let machines = match plan.num_machines {
        1 => String::new(),
        machines => format!(" on {machines} machines"),
    };
    let several = if plan.num_processes == 1 { "" } else { "es" };
    format!(
        "{whose}: {}; {} process{several}{machines}.",
        places.join(", "),
        plan.num_processes
    )
}

fn fits(fits: bool) -> String {
    if fits { "yes" } else { "no" }.to_owned()
}

fn running(plan: &Plan) -> String {
    let rows = plan.inference.iter().map(|way: &InferenceWay| {
        [
            way.way.label().to_owned(),
            some(way.device_bytes),
            some(way.cpu_bytes),
            some(way.disk_bytes),
            fits(way.fits),
        ]
    });
    let cache = match plan.cache_bytes {
        0 => String::new(),
        bytes => format!(" and {} of keys and values", size(bytes)),
    };
    Table {
        title: format!(
            "Running `{}` in {}: {} of weights{cache}",
            plan.model,
            plan.dtype,
            size(plan.weights_bytes)
        ),
        fit: TitleFit::Exact,
        headers: ["Way", "Device", "CPU", "Disk", "Fits"],
        rows: rows.collect(),
    }
    .draw()
}

fn training(plan: &Plan) -> String {
    let rows = plan.training.iter().map(|way: &TrainingWay| {
        [
            way.way.label().to_owned(),
            some(way.weights_bytes),
            some(way.copies_bytes),
            some(way.gradients_bytes),
            some(way.optimizer_bytes),
            some(way.device_bytes),
            some(way.cpu_bytes),
            some(way.disk_bytes),
            fits(way.fits),
        ]
    });
    let what = match &plan.lora {
        Some(lora) => format!("adapters of rank {} of ", lora.rank),
        None => String::new(),
    };
    Table {
        title: format!(
            "Training {what}`{}` with {}, mixed precision {}",
            plan.model, plan.optimizer, plan.mixed_precision
        ),
        fit: TitleFit::Exact,
        headers: [
            "Way",
            "Weights",
            "Copies",
            "Gradients",
            "Optimizer",
            "Device",
            "CPU",
            "Disk",
            "Fits",
        ],
        rows: rows.collect(),
    }
    .draw()
}

/// The map of the recommended way, if it needs one.
fn chosen_map(plan: &Plan, explain: bool) -> Option<String> {
    let chosen = plan.inference.iter().find(|way| way.fits)?;
    let map = chosen.map.as_ref()?;
    let mut lines = vec![format!("Device map, {}:", chosen.way.label())];
    let map = map_lines(map, explain).into_iter();
    lines.extend(map.map(|line| format!("  {line}")));
    Some(lines.join("\n"))
}

fn remarks(plan: &Plan) -> String {
    let inference = plan.inference.iter().find(|way| way.fits);
    let training = plan.training.iter().find(|way| way.fits);
    let mut lines = vec![
        match inference {
            Some(way) => format!("Running: {} fits.", way.way.label()),
            None => "Running: no way fits.".to_owned(),
        },
        match training {
            Some(way) => format!("Training: {} fits.", way.way.label()),
            None => "Training: no way fits.".to_owned(),
        },
    ];
    let running = plan.inference.iter();
    let running = running.filter_map(|way| Some((way.way.label(), way.problem.as_ref()?)));
    lines.extend(running.map(|(way, problem)| format!("Running, {way}: {problem}.")));
    let trained = plan.training.iter();
    let trained = trained.filter_map(|way| Some((way.way.label(), way.problem.as_ref()?)));
    lines.extend(trained.map(|(way, problem)| format!("Training, {way}: {problem}.")));
    lines.push(
        "Numbers are of each process in the columns of weights to device, of each machine in \
                those of CPU and disk."
            .to_owned(),
    );
    lines.push("Not counted:".to_owned());
    lines.extend(plan.not_counted.iter().map(|what| format!("  - {what}")));
    lines.join("\n")
}
