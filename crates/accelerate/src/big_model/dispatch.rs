//! Spreading a model over places.

use std::path::Path;

use accelerate_plan::device_map::{DeviceMap, Placement};
use tch::Device;

use super::devices::Site;
use super::options::DispatchOptions;
use super::plan::{Plan, Rules};
use super::settle::settle;
use super::shape::module_shape;
use super::spread::{kept_elsewhere, record, spread, take_off};
use super::weights::OffloadedWeights;
use crate::Result;
use crate::nn::Module;

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
/// [`Error::DeviceMap`](crate::Error::DeviceMap) for a map that does not cover the model or names what it lacks;
/// [`Error::NoSuchPlace`](crate::Error::NoSuchPlace) for an accelerator that is not there; [`Error::NoOffloadFolder`](crate::Error::NoOffloadFolder),
/// [`Error::OffloadSpace`](crate::Error::OffloadSpace) and [`Error::Formats`](crate::Error::Formats) for weights that cannot be put on disk;
/// [`Error::NothingOffloaded`](crate::Error::NothingOffloaded) for weights without values.
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
