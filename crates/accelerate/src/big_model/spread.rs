//! Hooks onto a model, and its weights to where they wait.

use std::cell::RefCell;
use std::rc::Rc;

use accelerate_plan::device_map::DeviceMap;
use accelerate_torch::meta;
use tch::Device;

use super::align_hook::{Align, AlignDevicesHook, Engine, hooks_of};
use super::blocks::Blocks;
use super::dispatched::Dispatched;
use super::pipeline::{Pipeline, Stage, Unit};
use super::plan::{HomePlan, Node, Placed, Plan, Rules};
use super::settle::{slots, to_disk};
use super::slot::Slot;
use super::source::tensor_bytes;
use super::weights::OffloadedWeights;
use crate::nn::Module;
use crate::{Error, Result};

/// Spreads a model, with weights that are kept outside of it already.
pub(super) fn spread(
    model: &dyn Module,
    weights: OffloadedWeights,
    rules: &Rules<'_>,
) -> Result<()> {
    if model.state().is_none() {
        return Err(Error::HookOnContainer {
            class: model.class_name(),
        });
    }
    let mut kept = kept_elsewhere(model);
    kept.add(weights);
    let plan = Plan::new(model, rules)?;
    for placed in &plan.tensors {
        if !meta::is_meta(&placed.direct.tensor)? {
            // Values that the model has got since count.
            kept.forget(&placed.direct.name);
        }
    }
    to_disk(&plan, &mut kept, rules)?;
    let slots = slots(&plan, &kept, rules)?;
    let (stages, numbers) = stages(model, &plan, &slots);
    let pipeline = Pipeline::new(stages, rules.options.prefetch, resident(&plan));
    let pipeline = match pipeline {
        Ok(pipeline) => pipeline,
        Err(error) => {
            let mut slots = slots.iter().flatten();
            slots.try_for_each(|slot| slot.go_home(false))?;
            return Err(error);
        }
    };
    let engine = Rc::new(Engine {
        devices: rules.options.devices.clone(),
        pipeline,
    });
    let is_spread = plan.tensors.iter().any(Placed::needs_slot)
        || plan.nodes.iter().any(|node| node.site != plan.main);
    take_off(model);
    record(model, rules.map, is_spread)?;
    let skip_keys: Rc<[String]> = rules.options.skip_keys.as_slice().into();
    for (node, block) in plan.nodes.iter().zip(numbers) {
        let own = node
            .tensors
            .iter()
            .filter_map(|&key| slots.get(key)?.clone());
        node.module.add_hook(Rc::new(AlignDevicesHook::new(Align {
            site: Some(node.site),
            io_same_device: node.name.is_empty(),
            skip_keys: Rc::clone(&skip_keys),
            offload: waiting(node, &plan).next().is_some(),
            slots: own.collect(),
            block,
            engine: Rc::clone(&engine),
            inputs_from: RefCell::default(),
        })))?;
    }
    Ok(())
}

/// The weights that an earlier dispatch keeps elsewhere.
pub(super) fn kept_elsewhere(model: &dyn Module) -> OffloadedWeights {
    let mut weights = OffloadedWeights::new();
    for (_, module) in model.named_modules() {
        for hook in hooks_of(module) {
            for slot in hook.slots() {
                if let Some(source) = slot.source() {
                    weights.insert(slot.name(), source.share());
                }
            }
        }
    }
    weights
}

/// Takes the hooks of an earlier dispatch off.
pub(super) fn take_off(model: &dyn Module) {
    for (_, module) in model.named_modules() {
        if let Some(state) = module.state() {
            state.take_hooks::<AlignDevicesHook>();
            state.take_hooks::<Dispatched>();
        }
    }
}

/// Keeps the map with the model.
pub(super) fn record(model: &dyn Module, map: &DeviceMap, is_spread: bool) -> Result<()> {
    let dispatched = Dispatched::new(Rc::new(map.clone()), is_spread);
    model.add_hook(Rc::new(dispatched))?;
    Ok(())
}

/// The bytes of weights that are in CPU memory for good, whether pages of files or not.
fn resident(plan: &Plan<'_>) -> u64 {
    let there = plan.tensors.iter().filter(
        |placed| matches!(placed.home, HomePlan::There(site) if site.device == Device::Cpu),
    );
    there
        .map(|placed| tensor_bytes(&placed.direct.tensor))
        .sum()
}

/// The blocks that the pipeline brings, and the block of each node that has weights in one.
fn stages(
    model: &dyn Module,
    plan: &Plan<'_>,
    slots: &[Option<Rc<Slot>>],
) -> (Vec<Stage>, Vec<Option<usize>>) {
    let mut blocks = Blocks::of(model);
    let mut stages: Vec<Stage> = Vec::new();
    let numbers = plan.nodes.iter().map(|node| {
        let own: Vec<_> = waiting(node, plan)
            .filter_map(|key| slots.get(key)?.clone())
            .collect();
        if own.is_empty() {
            return None;
        }
        let number = blocks.number(&node.name);
        stages.resize_with(stages.len().max(number + 1), Stage::default);
        if let Some(stage) = stages.get_mut(number) {
            stage.push(Unit {
                site: node.site,
                slots: own,
                reads_rows: node.module.class_name() == "Embedding",
            });
        }
        Some(number)
    });
    let numbers = numbers.collect();
    (stages, numbers)
}

/// The keys of the weights of a node that wait elsewhere.
fn waiting<'p>(node: &'p Node<'_>, plan: &'p Plan<'_>) -> impl Iterator<Item = usize> + 'p {
    let keys = node.tensors.iter().copied();
    keys.filter(|&key| plan.tensors.get(key).is_some_and(Placed::waits))
}
