//! Which steps each rank gets.

use std::collections::HashSet;
use std::ops::Range;

use accelerate_plan::config::nearest;

use super::steps::is_at_or_below;
use super::{PipelineOptions, PipelineStep, SplitPoints};
use crate::nn::{Buffer, Module, Parameter, all_buffers, all_parameters};
use crate::{Error, Result};

const OPERATION: &str = "pipeline";

/// The steps of each stage, in the order of ranks.
///
/// # Errors
/// [`Error::NoSuchMember`] for a split point that is no step, [`Error::Argument`] for steps that do
/// not make this number of stages, or leave out a part of the model.
pub(super) fn cut(
    model: &dyn Module,
    steps: &[PipelineStep],
    stages: usize,
    options: &PipelineOptions,
) -> Result<Vec<Range<usize>>> {
    require_all_members(model, steps)?;
    let is_allowed = allowed(model, steps, &options.no_split_module_classes)?;
    match &options.split_points {
        SplitPoints::Auto => {
            let bytes = steps.iter().map(|step| bytes(model, step));
            let bytes = bytes.collect::<Result<Vec<_>>>()?;
            balanced(&bytes, stages, &is_allowed).ok_or_else(|| Error::Argument {
                operation: OPERATION,
                expected: format!("a model that can be cut into {stages} stages, one for each process"),
                found: format!(
                    "{} steps with {} places to cut: {}; start fewer processes, or allow more places (`no_split_module_classes`)",
                    steps.len(),
                    is_allowed.iter().filter(|allowed| **allowed).count(),
                    names(steps)
                ),
            })
        }
        SplitPoints::Before(points) => before(model, steps, stages, points, &is_allowed),
    }
}

/// The stages between split points.
fn before(
    model: &dyn Module,
    steps: &[PipelineStep],
    stages: usize,
    points: &[String],
    is_allowed: &[bool],
) -> Result<Vec<Range<usize>>> {
    if points.len() + 1 != stages {
        return Err(Error::Argument {
            operation: OPERATION,
            expected: format!(
                "{} split points for {stages} processes",
                stages.saturating_sub(1)
            ),
            found: format!(
                "{} that make {} stages: {points:?}",
                points.len(),
                points.len() + 1
            ),
        });
    }
    let mut places = Vec::with_capacity(stages + 1);
    places.push(0);
    for point in points {
        let place = place_of(model, steps, point)?;
        let last = places.last().copied().unwrap_or(0);
        if place <= last || !is_allowed.get(place).copied().unwrap_or(false) {
            return Err(Error::Argument {
                operation: OPERATION,
                expected: "split points in the order of the steps, each after the first step and outside of \
                           `no_split_module_classes`"
                    .to_owned(),
                found: format!("`{point}`, which is step {place} of {}", names(steps)),
            });
        }
        places.push(place);
    }
    places.push(steps.len());
    Ok(places.windows(2).map(|pair| pair[0]..pair[1]).collect())
}

/// The first step that is the module of this name, or in it.
fn place_of(model: &dyn Module, steps: &[PipelineStep], point: &str) -> Result<usize> {
    let found = steps
        .iter()
        .position(|step| is_at_or_below(step.name(), point))
        .filter(|_| !point.is_empty());
    found.ok_or_else(|| {
        let known: Vec<String> = steps.iter().map(|step| step.name().to_owned()).collect();
        Error::NoSuchMember {
            class: model.class_name(),
            what: "step",
            name: point.to_owned(),
            nearest: nearest(point, known.iter().map(String::as_str)).map(str::to_owned),
            known,
        }
    })
}

/// A step that computes with what no step has would fail on another rank than the first.
fn require_all_members(model: &dyn Module, steps: &[PipelineStep]) -> Result<()> {
    let parameters = all_parameters(model).into_iter().map(|(name, _)| name);
    let buffers = all_buffers(model).into_iter().map(|(name, _)| name);
    let left: Vec<String> = parameters
        .chain(buffers)
        .filter(|name| !steps.iter().any(|step| step.holds(name)))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::Argument {
        operation: OPERATION,
        expected: format!(
            "steps of `{}` that have all its parameters and buffers",
            model.class_name()
        ),
        found: format!(
            "none with `{}`; name it in `Pipelined::steps`",
            left.join("`, `")
        ),
    })
}

/// Whether the model may be cut before each step.
fn allowed(model: &dyn Module, steps: &[PipelineStep], classes: &[String]) -> Result<Vec<bool>> {
    let modules = model.named_modules();
    let known: HashSet<&str> = modules
        .iter()
        .map(|(_, module)| module.class_name())
        .collect();
    if let Some(absent) = classes.iter().find(|class| !known.contains(class.as_str())) {
        let mut known: Vec<&str> = known.into_iter().collect();
        known.sort_unstable();
        return Err(Error::NoSuchMember {
            class: model.class_name(),
            what: "module of class",
            name: absent.clone(),
            nearest: nearest(absent, known.iter().copied()).map(str::to_owned),
            known: known.into_iter().map(str::to_owned).collect(),
        });
    }
    let whole: Vec<&str> = modules
        .iter()
        .filter(|(_, module)| classes.iter().any(|class| class == module.class_name()))
        .map(|(name, _)| name.as_str())
        .collect();
    let inside = |before: &PipelineStep, after: &PipelineStep| {
        whole.iter().any(|module| {
            is_at_or_below(before.name(), module) && is_at_or_below(after.name(), module)
        })
    };
    let cuts = steps.windows(2).map(|pair| !inside(&pair[0], &pair[1]));
    Ok([false].into_iter().chain(cuts).collect())
}

/// The bytes of what a step computes with, each tensor once.
fn bytes(model: &dyn Module, step: &PipelineStep) -> Result<u64> {
    let mut seen = HashSet::new();
    let parameters = all_parameters(model).into_iter();
    let parameters = parameters.map(|(name, one)| (name, Parameter::identity(one), one.tensor()));
    let buffers = all_buffers(model).into_iter();
    let buffers = buffers.map(|(name, one)| (name, Buffer::identity(one), one.tensor()));
    let mut bytes = 0;
    for (name, identity, tensor) in parameters.chain(buffers) {
        if step.holds(&name) && seen.insert(identity) {
            bytes += (tensor.numel() * tensor.f_kind()?.elt_size_in_bytes()) as u64;
        }
    }
    Ok(bytes)
}

/// The best way to make so many stages of the first steps.
#[derive(Clone, Copy)]
struct Best {
    /// The bytes of its largest stage, then how uneven the stages are.
    cost: (u64, u128),
    /// Where its last stage begins.
    begin: usize,
}

/// Stages of which the largest is as small as possible; none where there are too few places to cut.
///
/// `is_allowed` says whether there may be a cut before each step.
pub(super) fn balanced(
    bytes: &[u64],
    stages: usize,
    is_allowed: &[bool],
) -> Option<Vec<Range<usize>>> {
    let mut sums = vec![0u64];
    for step in bytes {
        sums.push(sums.last()? + step);
    }
    let steps = bytes.len();
    // `rows[k][end]`: the first `end` steps in `k + 1` stages.
    let mut rows: Vec<Vec<Option<Best>>> = Vec::with_capacity(stages);
    for stage in 0..stages {
        let row = (0..=steps).map(|end| {
            let begins = if stage == 0 { 0..1 } else { 1..end };
            let costs = begins.filter_map(|begin| {
                let before = match stage.checked_sub(1) {
                    None => (0, 0),
                    Some(_) if !*is_allowed.get(begin)? => return None,
                    Some(row) => (*rows.get(row)?.get(begin)?)?.cost,
                };
                let own = sums.get(end)? - sums.get(begin)?;
                let square = u128::from(own) * u128::from(own);
                let cost = (before.0.max(own), before.1.saturating_add(square));
                Some(Best { cost, begin })
            });
            costs
                .filter(|best| best.begin < end)
                .min_by_key(|best| best.cost)
        });
        let row = row.collect();
        rows.push(row);
    }
    let mut ranges = Vec::with_capacity(stages);
    let mut end = steps;
    for row in rows.iter().rev() {
        let begin = (*row.get(end)?)?.begin;
        ranges.push(begin..end);
        end = begin;
    }
    ranges.reverse();
    Some(ranges)
}

fn names(steps: &[PipelineStep]) -> String {
    let names: Vec<String> = steps
        .iter()
        .map(|step| format!("`{}`", step.name()))
        .collect();
    names.join(", ")
}
