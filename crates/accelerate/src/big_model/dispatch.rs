//! Spreading a model over places.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use accelerate_plan::device_map::{DeviceMap, Placement};
use accelerate_torch::{meta, storage};
use tch::{Device, Tensor};

use super::align_hook::{Align, AlignDevicesHook, Engine, hooks_of};
use super::blocks::Blocks;
use super::devices::Site;
use super::disk::write_weights;
use super::dispatched::Dispatched;
use super::options::DispatchOptions;
use super::pipeline::{Pipeline, Stage, Unit};
use super::plan::{HomePlan, Node, Placed, Plan, Rules};
use super::shape::module_shape;
use super::slot::Slot;
use super::source::{Source, Wanted, tensor_bytes};
use super::weights::{OffloadedWeights, fits};
use crate::nn::Module;
use crate::{Error, Result};

/// Spreads a model over places as a map says, so that it computes although no place holds all of it.
///
/// Weights that are mapped to an accelerator go there and stay; those in CPU memory or on disk come
/// to the main device when their module is called and go afterwards, and while one block computes the
/// next ones are on their way ([`Prefetch`](super::Prefetch)). Without an accelerator, weights in CPU
/// memory are computed with where they are. Inputs may be anywhere; outputs come back to where the
/// first tensor of the input was. A model that is in one place as a whole is moved there and gets no
/// hooks, unless [`force_hooks`](DispatchOptions::force_hooks) says so.
///
/// Weights that the map has on disk are written into the
/// [`offload_folder`](DispatchOptions::offload_folder), or are found in it if the model has no values
/// (meta device). A model that is dispatched already is dispatched anew.
///
/// ```
/// use accelerate::big_model::{DispatchOptions, device_map_of, dispatch_model, has_offloaded_params};
/// use accelerate::nn::{Factory, Forward, Linear, Module, Sequential};
/// use accelerate::tch::{self, Device, Kind, Tensor};
///
/// let factory = Factory::default();
/// let model = Sequential::new()
///     .with(Linear::new(2, 3, &factory)?)
///     .with(Linear::new(3, 1, &factory)?);
/// let batch = Tensor::f_ones([4, 2], (Kind::Float, Device::Cpu))?;
/// let expected = tch::no_grad(|| model.call(&batch))?;
///
/// let folder = tempfile::tempdir().unwrap();
/// let map = serde_json::from_str(r#"{"0": "cpu", "1": "disk"}"#).unwrap();
/// let options = DispatchOptions::default().with_offload_folder(folder.path());
/// dispatch_model(&model, &map, &options)?;
/// assert!(has_offloaded_params(model.get_submodule("1")?));
/// assert_eq!(*device_map_of(&model).unwrap(), map);
/// assert_eq!(tch::no_grad(|| model.call(&batch))?, expected);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// [`Error::DeviceMap`] for a map that does not cover the model or names what it lacks;
/// [`Error::NoSuchPlace`] for an accelerator that is not there; [`Error::NoOffloadFolder`],
/// [`Error::OffloadSpace`] and [`Error::Formats`] for weights that cannot be put on disk;
/// [`Error::NothingOffloaded`] for weights without values.
///
/// # Source
/// `dispatch_model`. Differs: an index that is found in the folder is trusted only for weights that
/// the model has no values for; those that it has are written again. Buffers that do not wait are
/// never left behind. The next blocks are brought before they are needed.
pub fn dispatch_model(
    model: &dyn Module,
    map: &DeviceMap,
    options: &DispatchOptions,
) -> Result<()> {
    dispatch_with(model, map, OffloadedWeights::new(), options)
}

/// As [`dispatch_model`], with weights that are kept outside of the model already.
pub(super) fn dispatch_with(
    model: &dyn Module,
    map: &DeviceMap,
    weights: OffloadedWeights,
    options: &DispatchOptions,
) -> Result<()> {
    map.check_device_map(&module_shape(model)?)?;
    let rules = Rules::new(map, options)?;
    let places = map.placements();
    let is_spread = places.len() > 1 || places.contains(&Placement::Disk);
    if !is_spread && !options.force_hooks {
        return move_whole(model, map, weights, &rules);
    }
    spread(model, weights, &rules)
}

/// Keeps all weights in CPU memory, and brings those of each module to the
/// [`main_device`](DispatchOptions::main_device), or to where the first parameter is, when it is
/// called.
///
/// # Errors
/// As [`dispatch_model`].
///
/// # Source
/// `cpu_offload`.
pub fn cpu_offload(model: &dyn Module, options: &DispatchOptions) -> Result<()> {
    let map = DeviceMap::whole(Placement::Cpu);
    let rules = Rules {
        main: main_site(model, options)?,
        cpu_waits: true,
        map: &map,
        options,
    };
    spread(model, OffloadedWeights::new(), &rules)
}

/// Writes all weights into a folder, and brings those of each module to the
/// [`main_device`](DispatchOptions::main_device), or to where the first parameter is, when it is
/// called.
///
/// # Errors
/// As [`dispatch_model`].
///
/// # Source
/// `disk_offload`. Differs: an index in the folder is used only where the model has no values.
pub fn disk_offload(
    model: &dyn Module,
    folder: impl AsRef<Path>,
    options: &DispatchOptions,
) -> Result<()> {
    let map = DeviceMap::whole(Placement::Disk);
    let options = &options.clone().with_offload_folder(folder.as_ref());
    let rules = Rules {
        main: main_site(model, options)?,
        cpu_waits: true,
        map: &map,
        options,
    };
    spread(model, OffloadedWeights::new(), &rules)
}

fn main_site(model: &dyn Module, options: &DispatchOptions) -> Result<Site> {
    if let Some(place) = options.main_device {
        return Ok(options.devices.site(place)?.unwrap_or(Site::CPU));
    }
    let first = model.parameters().into_iter().next();
    let device = first.map(|parameter| parameter.tensor().device());
    // A parameter without memory is nowhere.
    Ok(match device {
        Some(device @ (Device::Cuda(_) | Device::Mps)) => Site::of(device),
        _ => Site::CPU,
    })
}

/// A model in one place needs no hooks.
fn move_whole(
    model: &dyn Module,
    map: &DeviceMap,
    weights: OffloadedWeights,
    rules: &Rules<'_>,
) -> Result<()> {
    let place = map.placements().into_iter().next();
    let site = place.map(|place| rules.options.devices.site(place));
    let site = site.transpose()?.flatten().unwrap_or(Site::CPU);
    let mut kept = kept_elsewhere(model);
    kept.add(weights);
    let whole = Rules {
        main: site,
        cpu_waits: false,
        ..*rules
    };
    let plan = Plan::new(model, &whole)?;
    for placed in &plan.tensors {
        settle(placed, &kept, site, &whole)?;
    }
    take_off(model);
    record(model, map, false)
}

fn spread(model: &dyn Module, weights: OffloadedWeights, rules: &Rules<'_>) -> Result<()> {
    if model.state().is_none() {
        return Err(Error::HookOnContainer {
            class: model.class_name(),
        });
    }
    let mut kept = kept_elsewhere(model);
    kept.add(weights);
    let plan = Plan::new(model, rules)?;
    to_disk(&plan, &mut kept, rules)?;
    let slots = (plan.tensors.iter().enumerate())
        .map(|(key, placed)| slot(key, placed, &kept, rules))
        .collect::<Result<Vec<_>>>()?;
    let (stages, numbers) = stages(model, &plan, &slots);
    let resident = plan.tensors.iter().filter(
        |placed| matches!(placed.home, HomePlan::There(site) if site.device == Device::Cpu),
    );
    let resident = resident
        .map(|placed| tensor_bytes(&placed.direct.tensor))
        .sum();
    let engine = Rc::new(Engine {
        devices: rules.options.devices.clone(),
        pipeline: Pipeline::new(stages, rules.options.prefetch, resident)?,
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
fn kept_elsewhere(model: &dyn Module) -> OffloadedWeights {
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
fn take_off(model: &dyn Module) {
    for (_, module) in model.named_modules() {
        if let Some(state) = module.state() {
            state.take_hooks::<AlignDevicesHook>();
            state.take_hooks::<Dispatched>();
        }
    }
}

fn record(model: &dyn Module, map: &DeviceMap, is_spread: bool) -> Result<()> {
    let dispatched = Dispatched::new(Rc::new(map.clone()), is_spread);
    model.add_hook(Rc::new(dispatched))?;
    Ok(())
}

/// Puts weights on disk that are not there yet.
fn to_disk(plan: &Plan<'_>, weights: &mut OffloadedWeights, rules: &Rules<'_>) -> Result<()> {
    let mut write = Vec::new();
    let mut lacking = Vec::new();
    for placed in plan.tensors.iter().filter(|placed| placed.waits()) {
        let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
        let source = weights
            .source(name)
            .filter(|source| fits(source, name, tensor));
        let on_disk = placed.home == HomePlan::Disk;
        match source {
            Some(Source::Memory(values)) if on_disk => {
                write.push((name.clone(), values.shallow_clone()))
            }
            Some(_) => {}
            None if meta::is_meta(tensor)? => lacking.push((name.clone(), tensor.shallow_clone())),
            None if on_disk => write.push((name.clone(), tensor.f_detach()?)),
            None => {}
        }
    }
    let folder = rules.options.offload_folder.as_deref();
    find_in_folder(folder, &lacking, weights)?;
    match folder {
        _ if write.is_empty() => Ok(()),
        Some(folder) => {
            weights.add(write_weights(folder, &write)?);
            Ok(())
        }
        None => Err(Error::NoOffloadFolder {
            weights: write.into_iter().map(|(name, _)| name).collect(),
            why: "the model has them in memory only",
        }),
    }
}

/// Weights that the model has no values for, from a folder that was filled before.
fn find_in_folder(
    folder: Option<&Path>,
    lacking: &[(String, Tensor)],
    weights: &mut OffloadedWeights,
) -> Result<()> {
    if lacking.is_empty() {
        return Ok(());
    }
    let mut found = match folder {
        Some(folder) => OffloadedWeights::of_folder(folder)?,
        None => OffloadedWeights::new(),
    };
    let fits = |(name, tensor): &&(String, Tensor)| {
        let source = found.source(name);
        source.is_some_and(|source| fits(source, name, tensor))
    };
    let absent = lacking.iter().filter(|one| !fits(one));
    let absent: Vec<String> = absent.map(|(name, _)| name.clone()).collect();
    if !absent.is_empty() {
        return Err(Error::NothingOffloaded {
            weights: absent,
            why: match folder {
                Some(folder) => format!("`{}` has none of that shape", folder.display()),
                None => "there is no folder of offloaded weights".to_owned(),
            },
        });
    }
    found.keep_only(|name| lacking.iter().any(|(known, _)| known == name));
    weights.add(found);
    Ok(())
}

/// Brings a tensor to where it is kept, and gives its slot if it is computed with elsewhere.
fn slot(
    key: usize,
    placed: &Placed,
    weights: &OffloadedWeights,
    rules: &Rules<'_>,
) -> Result<Option<Rc<Slot>>> {
    let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
    if let HomePlan::There(site) = placed.home {
        settle(placed, weights, site, rules)?;
        return match placed.needs_slot() {
            true => Ok(Some(Rc::new(Slot::copied(key, name, tensor, site)?))),
            false => Ok(None),
        };
    }
    let source = match weights
        .source(name)
        .filter(|source| fits(source, name, tensor))
    {
        Some(source) => source.share(),
        None => Source::Memory(tch::no_grad(|| {
            tensor.f_detach()?.f_to_device(Device::Cpu)
        })?),
    };
    Ok(Some(Rc::new(Slot::away(key, name, tensor, source)?)))
}

/// Brings a tensor to a site for good.
fn settle(
    placed: &Placed,
    weights: &OffloadedWeights,
    site: Site,
    rules: &Rules<'_>,
) -> Result<()> {
    let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
    let is_empty = meta::is_meta(tensor)?;
    let source = weights
        .source(name)
        .filter(|source| fits(source, name, tensor));
    let (kind, device) = (tensor.f_kind()?, site.device);
    let values = match source {
        Some(source) if is_empty => source.copied(name, Wanted { kind, device })?,
        _ if is_empty => {
            return Err(Error::NothingOffloaded {
                weights: vec![name.clone()],
                why: "nothing was kept for it elsewhere".to_owned(),
            });
        }
        _ => tch::no_grad(|| tensor.f_detach()?.f_to_device(device))?,
    };
    let devices = &rules.options.devices;
    devices.take(site.placement, tensor_bytes(&values), name)?;
    if is_empty || tensor.device() != device {
        storage::replace(tensor, &values)?;
    }
    Ok(())
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
