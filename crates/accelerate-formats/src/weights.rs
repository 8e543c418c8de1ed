//! A file, an index or a folder of weights behind one interface.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::error::{Error, IndexFault, MissingTensor, Result};
use crate::folder::names_in;
use crate::index::ShardIndex;
use crate::mmap::MappedFile;
use crate::safetensors::{Metadata, SafetensorsFile, nearest};
use crate::tensor::StoredTensor;
use crate::torch::{self, TorchFile};

/// The file of weights that are in one piece.
pub const SINGLE_FILE: &str = "model.safetensors";
/// The index of weights that are in several pieces.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// The torch file of weights that are in one piece.
pub const TORCH_SINGLE_FILE: &str = "pytorch_model.bin";
/// The index of weights that are in several torch files.
pub const TORCH_INDEX_FILE: &str = "pytorch_model.bin.index.json";
/// How the name of any index ends.
const INDEX_ENDING: &str = ".index.json";
/// How the names of torch files end.
const TORCH_ENDINGS: [&str; 5] = ["bin", "pt", "pth", "ckpt", "pkl"];
/// How many names of a folder an error keeps.
const NAMES_KEPT: usize = 64;

/// The weights of a model, in one file or in several, of safetensors or of PyTorch.
///
/// All files are mapped and checked on opening; data comes from disk when it is first touched.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    files: Vec<WeightFile>,
    /// The tensors of each file, in the order of the data.
    tensors: Vec<Vec<(String, StoredTensor)>>,
    /// File by file and, within each, in the order of the data.
    order: Vec<Place>,
    by_name: HashMap<String, Place>,
    /// Second names of tensors, and the names they are stored under.
    aliases: BTreeMap<String, String>,
}

/// The number of a file and of a tensor in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    tensor: usize,
}

/// One file of weights, without its tensors.
#[derive(Debug)]
pub struct WeightFile {
    path: PathBuf,
    metadata: Option<Metadata>,
}

impl WeightFile {
    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text in the header of a safetensors file; none for a torch file.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Whether it is a file of `torch.save`.
    pub fn is_torch(&self) -> bool {
        self.metadata.is_none()
    }
}

/// A tensor of some weights and its name.
#[derive(Debug, Clone, Copy)]
pub struct WeightTensor<'a> {
    file: &'a WeightFile,
    name: &'a str,
    tensor: &'a StoredTensor,
}

impl<'a> WeightTensor<'a> {
    /// The name of the tensor.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The file that holds it.
    pub fn file(&self) -> &'a WeightFile {
        self.file
    }

    /// The tensor, for as long as the weights live.
    pub fn stored(&self) -> &'a StoredTensor {
        self.tensor
    }
}

impl Deref for WeightTensor<'_> {
    type Target = StoredTensor;

    fn deref(&self) -> &StoredTensor {
        self.tensor
    }
}

/// A file that was opened, with its tensors.
struct Opened {
    file: WeightFile,
    tensors: Vec<(String, StoredTensor)>,
}

impl Opened {
    fn torch(path: &Path, tensors: Vec<(String, StoredTensor)>) -> Self {
        let file = WeightFile {
            path: path.to_owned(),
            metadata: None,
        };
        Self { file, tensors }
    }
}

impl Weights {
    /// Opens the weights at `path`: a safetensors file, a torch file, an index (`*.json`), or a
    /// folder.
    ///
    /// In a folder it looks for [`TORCH_SINGLE_FILE`], then [`SINGLE_FILE`], then [`INDEX_FILE`],
    /// then the only other file whose name ends in `.index.json`.
    ///
    /// What a file is, its first bytes tell, unless its name ends in `.safetensors`.
    ///
    /// A tensor that lies in a file of the index without being named there belongs to the
    /// weights too, as long as only one file has it.
    ///
    /// # Errors
    /// [`Error::NoWeights`] or [`Error::ManyIndexes`] if a folder does not say what to read,
    /// [`Error::Index`] with all files or all tensors that are missing, and the errors of
    /// [`SafetensorsFile::open`], [`TorchFile::into_state_dict`] and [`ShardIndex::read`].
    ///
    /// # Source
    /// `load_checkpoint_in_model`. Differs: where a folder has several indexes and one is
    /// [`INDEX_FILE`], that one is read and it is no error.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let found = std::fs::metadata(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        let mut weights = if found.is_dir() {
            Self::open_file(&find_in(path)?)
        } else {
            Self::open_file(path)
        }?;
        path.clone_into(&mut weights.path);
        Ok(weights)
    }

    /// Opens the state dict under one key of a torch file, or under several joined by dots.
    ///
    /// # Errors
    /// Those of [`TorchFile::open`] and [`TorchFile::into_part`].
    pub fn open_part(path: impl AsRef<Path>, part: &str) -> Result<Self> {
        let path = path.as_ref();
        let tensors = TorchFile::open(path)?.into_part(part)?;
        Ok(Self::of_one(path, Opened::torch(path, tensors)))
    }

    fn open_file(path: &Path) -> Result<Self> {
        if has_extension(path, &["json"]) {
            return Self::open_index(&ShardIndex::read(path)?);
        }
        Ok(Self::of_one(path, open_one(path)?))
    }

    fn of_one(path: &Path, opened: Opened) -> Self {
        let names = opened.tensors.iter().map(|(name, _)| name.clone());
        let by_name: HashMap<String, Place> = names
            .enumerate()
            .map(|(tensor, name)| (name, Place { file: 0, tensor }))
            .collect();
        Self::new(path, vec![opened], by_name)
    }

    fn open_index(index: &ShardIndex) -> Result<Self> {
        let refused = |fault| Error::Index {
            path: index.path().to_owned(),
            fault,
        };
        let folder = index.path().parent().unwrap_or(Path::new(""));
        let shards: Vec<&str> = index.shards().into_iter().collect();
        let missing = shards.iter().filter(|shard| !folder.join(shard).exists());
        let missing: Vec<String> = missing.map(|&shard| shard.to_owned()).collect();
        if !missing.is_empty() {
            return Err(refused(IndexFault::ShardsMissing { shards: missing }));
        }
        let open = |shard: &&str| open_one(&folder.join(shard));
        let files = shards.iter().map(open).collect::<Result<Vec<_>>>()?;
        let by_name = place_all(index, &shards, &files).map_err(refused)?;
        Ok(Self::new(index.path(), files, by_name))
    }

    fn new(path: &Path, opened: Vec<Opened>, by_name: HashMap<String, Place>) -> Self {
        let mut order: Vec<Place> = by_name.values().copied().collect();
        order.sort_by_key(|place| (place.file, place.tensor));
        let aliases = aliases(&opened, &by_name);
        let (files, tensors) = opened
            .into_iter()
            .map(|Opened { file, tensors }| (file, tensors))
            .unzip();
        Self {
            path: path.to_owned(),
            files,
            tensors,
            order,
            by_name,
            aliases,
        }
    }

    /// What was opened: a file, an index or a folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, sorted by name.
    pub fn files(&self) -> &[WeightFile] {
        &self.files
    }

    /// All tensors, file by file and in the order of their data.
    ///
    /// Reading in this order goes through every file once, from front to back.
    pub fn tensors(&self) -> impl Iterator<Item = WeightTensor<'_>> {
        self.order.iter().filter_map(|&place| self.at(place))
    }

    /// The names of all tensors, in the order of [`tensors`](Self::tensors).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors().map(|tensor| tensor.name())
    }

    /// Second names of tied tensors that the files list, each with the name its tensor is stored
    /// under, sorted.
    ///
    /// Whoever writes safetensors files stores one of several tied tensors and lists the other
    /// names in the metadata, as the `safetensors` package does. [`get`](Self::get) knows them, and
    /// [`names`](Self::names) leaves them out. A torch file holds every name itself.
    pub fn aliases(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.aliases
            .iter()
            .map(|(alias, stored)| (alias.as_str(), stored.as_str()))
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`], with a name that differs only by a prefix where there is one.
    pub fn get(&self, name: &str) -> Result<WeightTensor<'_>> {
        self.find(name).ok_or_else(|| Error::TensorNotFound {
            path: self.path.clone(),
            tensor: name.to_owned(),
            nearest: nearest(self.names(), name),
        })
    }

    /// The tensor of this name, if the weights have it.
    pub fn find(&self, name: &str) -> Option<WeightTensor<'_>> {
        let stored = self.aliases.get(name).map_or(name, String::as_str);
        self.by_name.get(stored).and_then(|&place| self.at(place))
    }

    fn at(&self, place: Place) -> Option<WeightTensor<'_>> {
        let (name, tensor) = self.tensors.get(place.file)?.get(place.tensor)?;
        let file = self.files.get(place.file)?;
        Some(WeightTensor { file, name, tensor })
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The bytes of all tensors together, those of tied ones once for each name in the files.
    pub fn total_bytes(&self) -> u64 {
        self.tensors().map(|tensor| tensor.byte_len() as u64).sum()
    }
}

/// The second names in the metadata whose tensors are there under the first.
fn aliases(opened: &[Opened], by_name: &HashMap<String, Place>) -> BTreeMap<String, String> {
    let metadata = opened
        .iter()
        .filter_map(|opened| opened.file.metadata.as_ref());
    metadata
        .flat_map(|metadata| metadata.as_map())
        .filter(|(alias, stored)| by_name.contains_key(*stored) && !by_name.contains_key(*alias))
        .map(|(alias, stored)| (alias.clone(), stored.clone()))
        .collect()
}

fn open_one(path: &Path) -> Result<Opened> {
    if is_torch(path)? {
        let tensors = TorchFile::open(path)?.into_state_dict()?;
        return Ok(Opened::torch(path, tensors));
    }
    let file = SafetensorsFile::open(path)?;
    let stored = |tensor: crate::safetensors::TensorSlice<'_>| {
        (tensor.name().to_owned(), tensor.to_stored())
    };
    Ok(Opened {
        tensors: file.tensors().map(stored).collect(),
        file: WeightFile {
            path: path.to_owned(),
            metadata: Some(file.metadata().clone()),
        },
    })
}

/// Whether to read the file as one of PyTorch.
pub(crate) fn is_torch(path: &Path) -> Result<bool> {
    if has_extension(path, &["safetensors"]) {
        return Ok(false);
    }
    Ok(has_extension(path, &TORCH_ENDINGS) || torch::sniff(&MappedFile::open(path)?).is_some())
}

/// Finds every tensor of the index in its file, and those the index does not name.
fn place_all(
    index: &ShardIndex,
    shards: &[&str],
    files: &[Opened],
) -> Result<HashMap<String, Place>, IndexFault> {
    let numbers: BTreeMap<&str, usize> = shards
        .iter()
        .enumerate()
        .map(|(number, &shard)| (shard, number))
        .collect();
    let mut places = HashMap::with_capacity(index.iter().len());
    for (file, (&shard, opened)) in shards.iter().zip(files).enumerate() {
        for (tensor, (name, _)) in opened.tensors.iter().enumerate() {
            let home = index.shard_of(name).and_then(|home| numbers.get(home));
            if home.is_some_and(|&home| home != file) {
                continue;
            }
            if let Some(Place { file: first, .. }) =
                places.insert(name.clone(), Place { file, tensor })
            {
                let first = shards.get(first).copied().unwrap_or_default().to_owned();
                return Err(IndexFault::Ambiguous {
                    tensor: name.clone(),
                    first,
                    second: shard.to_owned(),
                });
            }
        }
    }
    let lost = index
        .iter()
        .filter(|(tensor, _)| !places.contains_key(*tensor));
    let lost = lost.map(|(tensor, shard)| MissingTensor {
        tensor: tensor.to_owned(),
        shard: shard.to_owned(),
    });
    let missing: Vec<MissingTensor> = lost.collect();
    if missing.is_empty() {
        Ok(places)
    } else {
        Err(IndexFault::TensorsMissing { missing })
    }
}

/// The file or index that [`Weights::open`] reads in a folder.
///
/// # Errors
/// [`Error::NoWeights`] or [`Error::ManyIndexes`] if the folder does not say what to read.
pub fn find_in(folder: &Path) -> Result<PathBuf> {
    // A link that leads nowhere counts: opening it then says which file is missing.
    let is_there = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    let mut standard = [TORCH_SINGLE_FILE, SINGLE_FILE, INDEX_FILE].into_iter();
    if let Some(standard) = standard.find(is_there) {
        return Ok(folder.join(standard));
    }
    let mut found = names_in(folder)?;
    let indexes: Vec<String> = found
        .iter()
        .filter(|name| name.ends_with(INDEX_ENDING))
        .cloned()
        .collect();
    match indexes.as_slice() {
        [only] => Ok(folder.join(only)),
        [] => {
            found.truncate(NAMES_KEPT);
            let standard = [TORCH_SINGLE_FILE, SINGLE_FILE, INDEX_FILE].map(str::to_owned);
            let looked_for = standard.into_iter().chain([format!("*{INDEX_ENDING}")]);
            Err(Error::NoWeights {
                folder: folder.to_owned(),
                looked_for: looked_for.collect(),
                found,
            })
        }
        _ => Err(Error::ManyIndexes {
            folder: folder.to_owned(),
            found: indexes,
        }),
    }
}

pub(crate) fn has_extension(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|found| {
        endings
            .iter()
            .any(|ending| found.eq_ignore_ascii_case(ending))
    })
}
