//! A file, an index or a folder of weights behind one interface.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::error::{Error, IndexFault, MissingTensor, Result};
use crate::index::ShardIndex;
use crate::safetensors::{SafetensorsFile, TensorSlice, nearest};

/// The file of weights that are in one piece.
pub const SINGLE_FILE: &str = "model.safetensors";
/// The index of weights that are in several pieces.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// How the name of any index of safetensors files ends.
const INDEX_ENDING: &str = ".safetensors.index.json";
/// How the names of torch pickles end.
const PICKLE_ENDINGS: [&str; 5] = ["bin", "pt", "pth", "ckpt", "pkl"];
/// How many names of a folder an error keeps.
const NAMES_KEPT: usize = 64;

/// The weights of a model, in one file or in several.
///
/// All files are mapped and checked on opening; data comes from disk when it is first touched.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    files: Vec<SafetensorsFile>,
    /// File by file and, within each, in the order of the data.
    order: Vec<Place>,
    by_name: HashMap<String, Place>,
}

/// The number of a file and of a tensor in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    tensor: usize,
}

impl Weights {
    /// Opens the weights at `path`: a safetensors file, an index (`*.json`), or a folder.
    ///
    /// In a folder it looks for [`SINGLE_FILE`], then [`INDEX_FILE`], then the only other
    /// index of safetensors files.
    ///
    /// A tensor that lies in a file of the index without being named there belongs to the
    /// weights too, as long as only one file has it.
    ///
    /// # Errors
    /// [`Error::NoWeights`], [`Error::ManyIndexes`] or [`Error::TorchPickle`] if a folder does not
    /// say what to read, [`Error::Index`] with all files or all tensors that are missing, and
    /// the errors of [`SafetensorsFile::open`] and [`ShardIndex::read`].
    ///
    /// # Source
    /// `load_checkpoint_in_model`. Differs: torch pickles are not read, so safetensors files
    /// are taken where both are there.
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

    fn open_file(path: &Path) -> Result<Self> {
        if is_pickle(path) {
            return Err(Error::TorchPickle {
                path: path.to_owned(),
            });
        }
        if has_extension(path, &["json"]) {
            return Self::open_index(&ShardIndex::read(path)?);
        }
        let file = SafetensorsFile::open(path)?;
        let order: Vec<Place> = (0..file.len())
            .map(|tensor| Place { file: 0, tensor })
            .collect();
        let by_name = file
            .names()
            .map(str::to_owned)
            .zip(order.iter().copied())
            .collect();
        Ok(Self {
            path: path.to_owned(),
            files: vec![file],
            order,
            by_name,
        })
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
        let open = |shard: &&str| open_shard(&folder.join(shard));
        let files = shards.iter().map(open).collect::<Result<Vec<_>>>()?;
        let by_name = place_all(index, &shards, &files).map_err(refused)?;
        let mut order: Vec<Place> = by_name.values().copied().collect();
        order.sort_by_key(|place| (place.file, place.tensor));
        Ok(Self {
            path: index.path().to_owned(),
            files,
            order,
            by_name,
        })
    }

    /// What was opened: a file, an index or a folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, sorted by name.
    pub fn files(&self) -> &[SafetensorsFile] {
        &self.files
    }

    /// All tensors, file by file and in the order of their data.
    ///
    /// Reading in this order goes through every file once, from front to back.
    pub fn tensors(&self) -> impl Iterator<Item = TensorSlice<'_>> {
        self.order.iter().filter_map(|&place| self.at(place))
    }

    /// The names of all tensors, in the order of [`tensors`](Self::tensors).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors().map(|tensor| tensor.name())
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`], with a name that differs only by a prefix where there is one.
    pub fn get(&self, name: &str) -> Result<TensorSlice<'_>> {
        self.find(name).ok_or_else(|| Error::TensorNotFound {
            path: self.path.clone(),
            tensor: name.to_owned(),
            nearest: nearest(self.names(), name),
        })
    }

    /// The tensor of this name, if the weights have it.
    pub fn find(&self, name: &str) -> Option<TensorSlice<'_>> {
        self.by_name.get(name).and_then(|&place| self.at(place))
    }

    fn at(&self, place: Place) -> Option<TensorSlice<'_>> {
        self.files.get(place.file)?.at(place.tensor)
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.tensors()
            .map(|tensor| tensor.bytes().len() as u64)
            .sum()
    }
}

fn open_shard(path: &Path) -> Result<SafetensorsFile> {
    if is_pickle(path) {
        return Err(Error::TorchPickle {
            path: path.to_owned(),
        });
    }
    SafetensorsFile::open(path)
}

/// Finds every tensor of the index in its file, and those the index does not name.
fn place_all(
    index: &ShardIndex,
    shards: &[&str],
    files: &[SafetensorsFile],
) -> Result<HashMap<String, Place>, IndexFault> {
    let numbers: BTreeMap<&str, usize> = shards
        .iter()
        .enumerate()
        .map(|(number, &shard)| (shard, number))
        .collect();
    let mut places = HashMap::with_capacity(index.iter().len());
    for (file, (&shard, opened)) in shards.iter().zip(files).enumerate() {
        for (tensor, name) in opened.names().enumerate() {
            let home = index.shard_of(name).and_then(|home| numbers.get(home));
            if home.is_some_and(|&home| home != file) {
                continue;
            }
            if let Some(Place { file: first, .. }) =
                places.insert(name.to_owned(), Place { file, tensor })
            {
                let first = shards.get(first).copied().unwrap_or_default().to_owned();
                return Err(IndexFault::Ambiguous {
                    tensor: name.to_owned(),
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

/// The file or index to read in a folder.
fn find_in(folder: &Path) -> Result<PathBuf> {
    // A link that leads nowhere counts: opening it then says which file is missing.
    let is_there = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    if let Some(standard) = [SINGLE_FILE, INDEX_FILE].into_iter().find(is_there) {
        return Ok(folder.join(standard));
    }
    let found = names_in(folder)?;
    let indexes: Vec<String> = found
        .iter()
        .filter(|name| name.ends_with(INDEX_ENDING))
        .cloned()
        .collect();
    match indexes.as_slice() {
        [only] => Ok(folder.join(only)),
        [] => Err(nothing_in(folder, found)),
        _ => Err(Error::ManyIndexes {
            folder: folder.to_owned(),
            found: indexes,
        }),
    }
}

fn nothing_in(folder: &Path, mut found: Vec<String>) -> Error {
    let mut pickles = found
        .iter()
        .filter(|name| name.ends_with(".bin.index.json") || is_pickle(Path::new(name)));
    // Other pickles, such as optimizer states, may lie beside the one of the model.
    let first = pickles
        .clone()
        .find(|name| name.starts_with("pytorch_model"))
        .or_else(|| pickles.next());
    if let Some(pickle) = first {
        return Error::TorchPickle {
            path: folder.join(pickle),
        };
    }
    found.truncate(NAMES_KEPT);
    let looked_for = vec![
        SINGLE_FILE.to_owned(),
        INDEX_FILE.to_owned(),
        format!("*{INDEX_ENDING}"),
    ];
    Error::NoWeights {
        folder: folder.to_owned(),
        looked_for,
        found,
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let reading = |source| Error::Open {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(reading)? {
        names.push(
            entry
                .map_err(reading)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort_unstable();
    Ok(names)
}

fn is_pickle(path: &Path) -> bool {
    has_extension(path, &PICKLE_ENDINGS)
}

fn has_extension(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|found| {
        endings
            .iter()
            .any(|ending| found.eq_ignore_ascii_case(ending))
    })
}
