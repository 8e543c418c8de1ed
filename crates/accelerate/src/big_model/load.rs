//! A checkpoint into an empty model, each weight straight to its place.

use std::collections::HashMap;
use std::path::Path;

use accelerate_formats::{StoredTensor, Weights};
use accelerate_plan::device_map::Placement;
use accelerate_torch::{meta, storage};
use tch::{Device, Kind, Tensor};

use super::broadcast::load_from_rank_0;
use super::devices::Site;
use super::disk::{FromFile, refer_or_write};
use super::load_options::LoadCheckpointOptions;
use super::private_map::PrivateMaps;
use super::shape::module_shape;
use super::source::{Source, Wanted, tensor_bytes};
use super::weights::{OffloadedWeights, Role, direct_tensors};
use crate::checkpoint::{LoadReport, Paired, pair_weights};
use crate::nn::Module;
use crate::{Error, Result};

/// What was loaded.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadedCheckpoint {
    /// What fits and what does not.
    pub report: LoadReport,
    /// Weights that stay on disk: [`dispatch_model`](super::dispatch_model) looks for them in the
    /// folder, [`load_checkpoint_and_dispatch`](super::load_checkpoint_and_dispatch) takes them as they are.
    pub on_disk: OffloadedWeights,
}

/// Loads a checkpoint into a model that may be empty (meta device): a file, an index or a folder, of
/// safetensors or of `torch.save`, whole or in shards.
///
/// Each weight goes straight to its place of the [map](LoadCheckpointOptions::device_map) and becomes
/// the type of the model, or [`dtype`](LoadCheckpointOptions::dtype). One that stays in CPU memory and
/// in its type is not copied: the file is mapped, pages come when they are needed, and a page that is
/// written to becomes the process's own. Weights on disk stay in the files of the checkpoint, if they
/// lie there as they are needed, and the model has none for them (meta device) until it is dispatched.
///
/// All handles on a tensor, such as those of tied weights, see its values.
///
/// # Errors
/// [`Error::Formats`] where there are no weights or damaged ones; [`Error::WeightsDoNotFit`] with
/// everything that is missing, unexpected or of another shape, and [`Error::DeviceMap`] with all that
/// the map lacks or has too much, before anything is loaded; [`Error::NoOffloadFolder`] naming weights
/// that cannot stay on disk without a folder; [`Error::OffloadSpace`]; what a device reports. A
/// lenient load reports missing and unexpected names, and warns.
///
/// # Collective
/// With [`broadcast_from_rank0`](LoadCheckpointOptions::broadcast_from_rank0) every rank calls this.
///
/// # Source
/// `load_checkpoint_in_model`. Differs: missing names count too, and strict is the default; weights
/// that a checkpoint lacks stay as they are and are an error later; nothing is written where files of
/// the checkpoint serve, so that there is no `offload_state_dict`; a model in shards is loaded by
/// [`PreparedModel::load_checkpoint`](crate::PreparedModel::load_checkpoint), whose files are whole
/// (`full_state_dict`).
pub fn load_checkpoint_in_model(
    model: &dyn Module,
    checkpoint: impl AsRef<Path>,
    options: &LoadCheckpointOptions<'_>,
) -> Result<LoadedCheckpoint> {
    let checkpoint = checkpoint.as_ref();
    if let Some(map) = &options.device_map {
        map.check_device_map(&module_shape(model)?)?;
    }
    let loaded = match options.broadcast_from_rank0 {
        Some(state) => load_from_rank_0(model, checkpoint, options, state)?,
        None => load(model, checkpoint, options)?,
    };
    if !loaded.report.fits() {
        tracing::warn!(
            path = %checkpoint.display(),
            class = model.class_name(),
            "not everything fits: {}", loaded.report
        );
    }
    Ok(loaded)
}

fn load(
    model: &dyn Module,
    checkpoint: &Path,
    options: &LoadCheckpointOptions<'_>,
) -> Result<LoadedCheckpoint> {
    let weights = Weights::open(checkpoint)?;
    let (report, paired) = pair_weights(model, &weights, &options.fit)?;
    let mut loading = Loading::new(model, options)?;
    for pair in &paired {
        loading.stage(pair, &weights)?;
    }
    loading.check_disk()?;
    for pair in paired {
        loading.place(pair)?;
    }
    let on_disk = loading.finish()?;
    Ok(LoadedCheckpoint { report, on_disk })
}

/// What a tensor of the model is.
pub(super) struct Target {
    /// All of its names, in the order of the tree.
    pub(super) names: Vec<String>,
    role: Role,
}

/// The tensors of a model by their identity.
pub(super) fn targets(model: &dyn Module) -> HashMap<usize, Target> {
    let mut targets: HashMap<usize, Target> = HashMap::new();
    for (name, module) in model.named_modules() {
        for direct in direct_tensors(&name, module) {
            let target = targets.entry(storage::identity(&direct.tensor));
            let target = target.or_insert_with(|| Target {
                names: Vec::new(),
                role: direct.role,
            });
            target.names.push(direct.name);
        }
    }
    targets
}

/// A checkpoint on its way into a model.
struct Loading<'o> {
    options: &'o LoadCheckpointOptions<'o>,
    targets: HashMap<usize, Target>,
    /// Where weights go without a map.
    device: Device,
    files: PrivateMaps,
    /// Weights that stay on disk, under the first of their names in the model.
    to_disk: Vec<(String, FromFile)>,
    on_disk: OffloadedWeights,
}

impl<'o> Loading<'o> {
    fn new(model: &dyn Module, options: &'o LoadCheckpointOptions<'o>) -> Result<Self> {
        Ok(Self {
            device: own_device(model)?,
            targets: targets(model),
            options,
            files: PrivateMaps::default(),
            to_disk: Vec::new(),
            on_disk: OffloadedWeights::new(),
        })
    }

    fn target(&self, pair: &Paired) -> Result<&Target> {
        let target = self.targets.get(&storage::identity(&pair.target));
        target.ok_or_else(|| Error::Argument {
            operation: "load_checkpoint_in_model",
            expected: "a tensor that a called module of the model holds".to_owned(),
            found: format!("`{}`", pair.name),
        })
    }

    /// The place of a weight; none for one that stays on disk.
    fn site(&self, target: &Target) -> Result<Option<Site>> {
        let Some(map) = &self.options.device_map else {
            return Ok(Some(Site::of(self.device)));
        };
        let first = target.names.first().map_or("", String::as_str);
        let place = map.placement_of(first).unwrap_or(Placement::Cpu);
        match self.options.devices.site(place)? {
            None if !target.role.can_wait(self.options.offload_buffers) => Ok(Some(Site::CPU)),
            site => Ok(site),
        }
    }

    /// Notes a weight that stays on disk.
    fn stage(&mut self, pair: &Paired, weights: &Weights) -> Result<()> {
        let target = self.target(pair)?;
        if self.site(target)?.is_some() {
            return Ok(());
        }
        let name = target.names.first().cloned().unwrap_or_default();
        let found = weights.find(&pair.name);
        let safetensors = found.filter(|found| !found.file().is_torch());
        let safetensors = safetensors.map(|found| {
            let path = found.file().path().to_owned();
            (path, found.name().to_owned())
        });
        self.to_disk.push((
            name,
            FromFile {
                stored: pair.stored.clone(),
                safetensors,
            },
        ));
        Ok(())
    }

    /// Writes what has to be written, before anything of the model changes.
    fn check_disk(&mut self) -> Result<()> {
        if let Some(folder) = &self.options.offload_folder {
            if !self.to_disk.is_empty() {
                refer_or_write(folder, &self.to_disk)?;
            }
            return Ok(());
        }
        let unfit = self.to_disk.iter().filter(|(_, one)| !serves(&one.stored));
        let unfit: Vec<String> = unfit.map(|(name, _)| name.clone()).collect();
        match unfit.is_empty() {
            true => Ok(()),
            false => Err(Error::NoOffloadFolder {
                weights: unfit,
                why: "they do not lie in the checkpoint as they are needed",
            }),
        }
    }

    fn place(&mut self, pair: Paired) -> Result<()> {
        let target = self.target(&pair)?;
        let (site, role) = (self.site(target)?, target.role);
        let first = target.names.first().cloned().unwrap_or_default();
        let kind = wanted_kind(self.options, &first, &pair.target)?;
        let Some(site) = site else {
            return self.leave_on_disk(&first, pair, kind);
        };
        let wanted = Wanted {
            kind,
            device: site.device,
        };
        let values = self.values(&first, &pair.stored, wanted, role)?;
        let devices = &self.options.devices;
        // What a dispatch takes note of later is not counted twice.
        devices.take(site.placement, tensor_bytes(&values), &first)?;
        devices.give_back(site.placement, tensor_bytes(&values));
        storage::replace(&pair.target, &values)?;
        Ok(())
    }

    /// The model's tensor loses its memory, if it has any; what is loaded later becomes its type.
    fn leave_on_disk(&mut self, name: &str, pair: Paired, kind: Kind) -> Result<()> {
        let shape = pair.target.size();
        storage::replace(&pair.target, &meta::empty(&shape, kind)?)?;
        self.on_disk.insert_file(name, pair.stored);
        Ok(())
    }

    fn values(
        &mut self,
        name: &str,
        stored: &StoredTensor,
        wanted: Wanted,
        role: Role,
    ) -> Result<Tensor> {
        let source = Source::File(stored.clone());
        // Buffers are small, and some change with every batch.
        if role == Role::Parameter
            && source.is_in_place(name, wanted)?
            && let Some(mapped) = self.files.tensor(name, stored)?
        {
            return Ok(mapped);
        }
        if wanted.device == Device::Cpu {
            return source.copied(name, wanted);
        }
        source.made(name, wanted, None)
    }

    /// Gives the weights that stay on disk. Where there is a folder, those that had to be written are
    /// taken from it.
    fn finish(mut self) -> Result<OffloadedWeights> {
        self.files.read_ahead();
        let moved = self.to_disk.iter().any(|(_, one)| !serves(&one.stored));
        if let Some(folder) = self.options.offload_folder.as_ref().filter(|_| moved) {
            let unfit = |name: &str| {
                let mut all = self.to_disk.iter();
                all.any(|(known, one)| known == name && !serves(&one.stored))
            };
            let written = OffloadedWeights::of_folder_where(folder, unfit)?;
            self.on_disk.add(written);
        }
        Ok(self.on_disk)
    }
}

/// The type that a weight is to have.
pub(super) fn wanted_kind(
    options: &LoadCheckpointOptions<'_>,
    name: &str,
    target: &Tensor,
) -> Result<Kind> {
    let own = target.f_kind()?;
    let Some(dtype) = options.dtype.filter(|_| is_float(own)) else {
        return Ok(own);
    };
    let stays = |part: &String| name == part || name.contains(&format!("{part}."));
    let keep = dtype == Kind::Half && options.keep_in_fp32_modules.iter().any(stays);
    Ok(if keep { Kind::Float } else { dtype })
}

/// Whether a weight can be used again and again as it lies in its file.
fn serves(stored: &StoredTensor) -> bool {
    let storage = stored.storage();
    storage.mapped().is_some()
        && !storage.is_deflated()
        && !storage.is_big_endian()
        && stored.is_contiguous()
}

/// Where the model has its values; the CPU if it has none.
pub(super) fn own_device(model: &dyn Module) -> Result<Device> {
    for parameter in model.parameters() {
        if !parameter.is_meta()? {
            return Ok(parameter.tensor().device());
        }
    }
    Ok(Device::Cpu)
}

fn is_float(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Bool | Kind::Uint8 | Kind::Int8 | Kind::Int16 | Kind::Int | Kind::Int64
    )
}
