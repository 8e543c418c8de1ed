//! From a checkpoint on disk to a model that computes, whatever its size.

use std::path::Path;

use accelerate_plan::device_map::{DeviceMap, InferOptions, Inferred, MaxMemory, Mode, Placement};
use accelerate_torch::{device, memory};
use tch::{Device, Kind};

use super::devices::DeviceTable;
use super::dispatch::dispatch_with;
use super::load::load_checkpoint_in_model;
use super::load_options::LoadCheckpointOptions;
use super::options::DispatchOptions;
use super::shape::{element_type_of, module_shape};
use crate::Result;
use crate::checkpoint::{LoadOptions, LoadReport};
use crate::memory::available_memory;
use crate::nn::Module;

/// Which part of a model goes where.
#[derive(Debug, Clone, PartialEq)]
pub enum MapChoice {
    /// As this map says.
    Map(DeviceMap),
    /// As it is found in this way.
    Mode(Mode),
}

/// How [`load_checkpoint_and_dispatch`] loads and dispatches.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadAndDispatchOptions<'a> {
    /// Which part goes where; found automatically if not changed.
    pub device_map: MapChoice,
    /// What each place may hold; what the machine has, if not given.
    pub max_memory: Option<MaxMemory>,
    /// Classes whose modules stay in one place.
    pub no_split_module_classes: Vec<String>,
    /// How closely the checkpoint has to fit.
    pub fit: LoadOptions<'a>,
    /// The type that floating-point weights become; that of the model if not given.
    pub dtype: Option<Kind>,
    /// Parts of names whose weights stay in 32 bits when the type is `Half`.
    pub keep_in_fp32_modules: Vec<String>,
    /// How the model is spread.
    pub dispatch: DispatchOptions,
}

impl Default for LoadAndDispatchOptions<'_> {
    fn default() -> Self {
        Self {
            device_map: MapChoice::Mode(Mode::Auto),
            max_memory: None,
            no_split_module_classes: Vec::new(),
            fit: LoadOptions::default(),
            dtype: None,
            keep_in_fp32_modules: Vec::new(),
            dispatch: DispatchOptions::default(),
        }
    }
}

impl<'a> LoadAndDispatchOptions<'a> {
    /// Chooses which part goes where.
    #[must_use]
    pub fn with_device_map(mut self, device_map: MapChoice) -> Self {
        self.device_map = device_map;
        self
    }

    /// Chooses what each place may hold.
    #[must_use]
    pub fn with_max_memory(mut self, max_memory: MaxMemory) -> Self {
        self.max_memory = Some(max_memory);
        self
    }

    /// Adds a class whose modules stay in one place.
    #[must_use]
    pub fn with_no_split_class(mut self, class: impl Into<String>) -> Self {
        self.no_split_module_classes.push(class.into());
        self
    }

    /// Chooses how closely the checkpoint has to fit.
    #[must_use]
    pub fn with_fit(mut self, fit: LoadOptions<'a>) -> Self {
        self.fit = fit;
        self
    }

    /// Chooses the type that floating-point weights become.
    #[must_use]
    pub fn with_dtype(mut self, dtype: Kind) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Chooses how the model is spread.
    #[must_use]
    pub fn with_dispatch(mut self, dispatch: DispatchOptions) -> Self {
        self.dispatch = dispatch;
        self
    }
}

/// A checkpoint that was loaded, and how its model is spread.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadedAndDispatched {
    /// What fits and what does not.
    pub report: LoadReport,
    /// Which part is where.
    pub device_map: DeviceMap,
    /// Why, if the map was found automatically.
    pub inferred: Option<Inferred>,
}

/// Loads a checkpoint into an empty model and spreads it over the places that there are, or as a map
/// says: [`load_checkpoint_in_model`], then [`dispatch_model`](super::dispatch_model).
///
/// ```
/// use accelerate::big_model::{
///     DeviceMap, LoadAndDispatchOptions, MapChoice, Placement, has_offloaded_params,
///     load_checkpoint_and_dispatch,
/// };
/// use accelerate::checkpoint::{SaveModelOptions, save_model};
/// use accelerate::nn::{Factory, Forward, Linear, init_empty_weights};
/// use accelerate::tch::{self, Device, Kind, Tensor};
///
/// let folder = tempfile::tempdir().unwrap();
/// let saved = Linear::new(2, 3, &Factory::default())?;
/// save_model(&saved, folder.path(), &SaveModelOptions::default())?;
///
/// let model = init_empty_weights(|| Linear::new(2, 3, &Factory::default()))?;
/// let map = DeviceMap::whole(Placement::Disk);
/// let options = LoadAndDispatchOptions::default().with_device_map(MapChoice::Map(map));
/// let loaded = load_checkpoint_and_dispatch(&model, folder.path(), &options)?;
/// assert!(loaded.report.fits() && has_offloaded_params(&model));
/// let batch = Tensor::f_ones([4, 2], (Kind::Float, Device::Cpu))?;
/// assert_eq!(tch::no_grad(|| model.call(&batch))?, tch::no_grad(|| saved.call(&batch))?);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// Those of both, and [`Error::DeviceMap`](crate::Error::DeviceMap) where a limit is too small for
/// the largest block that has to be whole on a device.
///
/// # Source
/// `load_checkpoint_and_dispatch`. Differs: as both do; a map is found automatically if none is
/// given, where the original loads onto the CPU and does not dispatch.
pub fn load_checkpoint_and_dispatch(
    model: &dyn Module,
    checkpoint: impl AsRef<Path>,
    options: &LoadAndDispatchOptions<'_>,
) -> Result<LoadedAndDispatched> {
    let (device_map, inferred) = match &options.device_map {
        MapChoice::Map(map) => (map.clone(), None),
        MapChoice::Mode(mode) => {
            let inferred = infer(model, *mode, options)?;
            (inferred.device_map.clone(), Some(inferred))
        }
    };
    let load = LoadCheckpointOptions {
        fit: options.fit.clone(),
        device_map: Some(device_map.clone()),
        offload_folder: options.dispatch.offload_folder.clone(),
        dtype: options.dtype,
        keep_in_fp32_modules: options.keep_in_fp32_modules.clone(),
        offload_buffers: options.dispatch.offload_buffers,
        devices: options.dispatch.devices.clone(),
        broadcast_from_rank0: None,
    };
    let loaded = load_checkpoint_in_model(model, checkpoint, &load)?;
    dispatch_with(model, &device_map, loaded.on_disk, &options.dispatch)?;
    Ok(LoadedAndDispatched {
        report: loaded.report,
        device_map,
        inferred,
    })
}

fn infer(model: &dyn Module, mode: Mode, options: &LoadAndDispatchOptions<'_>) -> Result<Inferred> {
    let shape = module_shape(model)?;
    let max_memory = match &options.max_memory {
        Some(limits) => limits.clone(),
        None => detected_memory(&options.dispatch.devices),
    };
    let mut infer = InferOptions::with_limits(max_memory);
    infer
        .no_split_module_classes
        .clone_from(&options.no_split_module_classes);
    infer.dtype = options.dtype.map(element_type_of);
    infer.offload_buffers = options.dispatch.offload_buffers;
    let inferred = mode.infer(&shape, &infer, options.max_memory.is_none())?;
    inferred.check_room()?;
    if let Some(warning) = &inferred.buffer_warning {
        tracing::warn!("{warning}");
    }
    Ok(inferred)
}

/// What each place of this machine may hold now: the free memory of each accelerator, and four fifths
/// of the main memory that is available to this process. Pretended accelerators have their limits.
///
/// # Source
/// `get_max_memory` without limits. Differs: limits of control groups count, and a fifth of main
/// memory is left to what is computed and to blocks on their way.
pub fn detected_memory(devices: &DeviceTable) -> MaxMemory {
    let mut limits = match devices.limits() {
        Some(limits) => limits.clone(),
        None => accelerators(),
    };
    let unlimited = limits.get(Placement::Cpu).is_none();
    if let Some(bytes) = available_memory().filter(|_| unlimited) {
        limits.insert(Placement::Cpu, bytes / 5 * 4);
    }
    limits
}

fn accelerators() -> MaxMemory {
    let found = (0..device::count(Device::Cuda(0))).filter_map(|index| {
        match memory::accelerator(Device::Cuda(index)) {
            Ok(memory) => Some((Placement::Accelerator(index as u32), memory.free)),
            Err(error) => {
                tracing::info!(index, "an accelerator is left out: {error}");
                None
            }
        }
    });
    found.collect()
}
