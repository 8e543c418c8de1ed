//! Weights into a folder that other tools load, and out of it.

use std::path::{Path, PathBuf};

use accelerate_formats::weights::{INDEX_FILE, SINGLE_FILE, TORCH_INDEX_FILE, TORCH_SINGLE_FILE};
use accelerate_formats::{AtomicFile, Metadata, ShardSize, ShardedOptions, ShardedWriter, Weights};

use super::folder::io;
use super::load::{LoadOptions, load_weights};
use super::report::LoadReport;
use super::state_dict::{StateDict, state_dict};
use super::weight_set::WeightSet;
use crate::Result;
use crate::big_model::{get_state_dict_offloaded_model, is_offloaded};
use crate::nn::{Module, require_state};

/// How [`save_model`] writes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SaveModelOptions {
    /// How large a file may become; 10 GB if not changed. Only safetensors files are split.
    pub max_shard_size: ShardSize,
    /// Whether to write safetensors files, and not one `pytorch_model.bin`; on if not changed.
    pub safe_serialization: bool,
    /// Text for the header of every safetensors file, besides `format: pt`.
    pub metadata: Metadata,
}

impl Default for SaveModelOptions {
    fn default() -> Self {
        Self {
            max_shard_size: ShardSize::default(),
            safe_serialization: true,
            metadata: Metadata::default(),
        }
    }
}

impl SaveModelOptions {
    /// Chooses how large a file may become: `"5GB".parse()?`.
    #[must_use]
    pub fn max_shard_size(mut self, size: ShardSize) -> Self {
        self.max_shard_size = size;
        self
    }

    /// Chooses the form of the files.
    #[must_use]
    pub fn safe_serialization(mut self, safe: bool) -> Self {
        self.safe_serialization = safe;
        self
    }
}

/// Writes the weights of a module into a folder, which is made where it is absent, and names the
/// files.
///
/// That is `model.safetensors`, or `model-00001-of-00003.safetensors` and so on with
/// `model.safetensors.index.json`, or `pytorch_model.bin`. A tied weight is stored once; safetensors
/// files list its other names, and a torch file has them all. What an earlier save left there and
/// loading would take for a part of this one is deleted. Memory is needed for one tensor at a time,
/// and for none that lies contiguous on the CPU. Weights that a device map keeps elsewhere
/// ([`big_model`](crate::big_model)) are written from there.
///
/// # Errors
/// [`Error::OnMeta`](crate::Error::OnMeta) naming weights without values, [`Error::Io`](crate::Error::Io) if the folder is a file or cannot
/// be made, [`Error::Formats`](crate::Error::Formats) if a file cannot be written.
///
/// # Source
/// `Accelerator.save_model`. Differs: a file at the folder's name is an error and not a message in
/// the log, and the other names of tied weights are kept.
pub fn save_model(
    module: &dyn Module,
    folder: impl AsRef<Path>,
    options: &SaveModelOptions,
) -> Result<Vec<PathBuf>> {
    save_weights_of(weights_of(module)?, folder.as_ref(), options)
}

/// All weights of a module, wherever a device map has put them.
fn weights_of(module: &dyn Module) -> Result<StateDict> {
    if is_offloaded(module) {
        return get_state_dict_offloaded_model(module);
    }
    require_state(module, "save_model")?;
    state_dict(module)
}

/// As [`save_model`], of weights by name.
pub(crate) fn save_weights_of(
    state: StateDict,
    folder: &Path,
    options: &SaveModelOptions,
) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).map_err(|source| io("make the folder", folder, source))?;
    let weights = WeightSet::new(state)?;
    if options.safe_serialization {
        return write_shards(&weights, folder, options);
    }
    let path = folder.join(TORCH_SINGLE_FILE);
    weights.write_torch(AtomicFile::create(&path)?)?;
    // Nothing else leads to the shards that are listed there.
    for stale in [SINGLE_FILE, INDEX_FILE, TORCH_INDEX_FILE] {
        remove(&folder.join(stale))?;
    }
    Ok(vec![path])
}

fn write_shards(
    weights: &WeightSet,
    folder: &Path,
    options: &SaveModelOptions,
) -> Result<Vec<PathBuf>> {
    let mut sharded = ShardedOptions::default().with_max_shard_size(options.max_shard_size);
    sharded.metadata = options.metadata.clone();
    sharded.aliases = weights.aliases();
    let mut writer = ShardedWriter::create(folder, weights.headers()?, &sharded)?;
    while let Some(name) = writer.pending().map(|header| header.name.clone()) {
        weights.read(&name, |bytes| writer.write(&name, bytes))??;
    }
    Ok(writer.finish()?)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(io("remove", path, source))
        }
        _ => Ok(()),
    }
}

/// Copies the weights of a checkpoint into a module: of a file, an index or a folder, of
/// safetensors or of `torch.save`, whole or in shards.
///
/// Tensors are copied from the mapped files to where the module has its own, whichever device that
/// is; nothing of the files is held in memory besides. See [`load_weights`] for names, types and ties.
///
/// ```
/// use accelerate::checkpoint::{LoadOptions, SaveModelOptions, load_checkpoint_in_model, save_model};
/// use accelerate::nn::{Factory, Linear};
///
/// let folder = tempfile::tempdir().unwrap();
/// let model = Linear::new(2, 2, &Factory::default())?;
/// let options = SaveModelOptions::default().max_shard_size("0.016KB".parse().unwrap());
/// assert_eq!(save_model(&model, folder.path(), &options)?.len(), 3);
/// let report = load_checkpoint_in_model(&model, folder.path(), &LoadOptions::strict())?;
/// assert_eq!(report.loaded, 2);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// [`Error::Formats`](crate::Error::Formats) where there are no weights or damaged ones; [`Error::WeightsDoNotFit`](crate::Error::WeightsDoNotFit) with
/// everything that is missing, unexpected or of another shape, before anything is copied. A lenient
/// load gives the missing and unexpected names back, and warns.
///
/// # Source
/// `load_checkpoint_in_model` without a device map. Differs: missing names count, too, and strict is
/// the default.
pub fn load_checkpoint_in_model(
    module: &dyn Module,
    checkpoint: impl AsRef<Path>,
    options: &LoadOptions<'_>,
) -> Result<LoadReport> {
    let weights = Weights::open(checkpoint)?;
    let report = load_weights(module, &weights, options)?;
    if !report.fits() {
        tracing::warn!(
            path = %weights.path().display(),
            class = module.class_name(),
            "not everything fits: {report}"
        );
    }
    Ok(report)
}
