//! The description: every tensor with its parts, every other value, and where they lie.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::boxes::Span;
use crate::dtype::Dtype;
use crate::error::{DistributedFault, PickleFault};
use crate::index::is_plain_name;
use crate::pickle::{self, Call, Graph, Id, MAX_DEPTH, Node};

pub(super) const METADATA: &str = "torch.distributed.checkpoint.metadata";
pub(super) const FILESYSTEM: &str = "torch.distributed.checkpoint.filesystem";
/// Where some classes were before PyTorch 2.3.
const OLD_METADATA: &str = "torch.distributed._shard.sharded_tensor.metadata";

type Result<T> = std::result::Result<T, DistributedFault>;

/// A tensor that lies in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardedTensor {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) chunks: Vec<Chunk>,
}

/// A box of a tensor, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chunk {
    pub(super) offsets: Vec<usize>,
    pub(super) sizes: Vec<usize>,
    pub(super) place: Place,
}

/// A stream within a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// A step on the way to a value: a key of a dict, or a place in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathPart {
    /// A key.
    Key(String),
    /// A place, counted from 0.
    Index(usize),
}

impl ShardedTensor {
    /// The name: keys joined by dots.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape of the whole tensor.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its parts, in the order of the description.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Checks that every part lies within the tensor, and that together they have its elements.
    pub(super) fn check(&self) -> Result<()> {
        // Before the parts are counted, which are no larger in any dimension.
        let expected = self
            .dtype
            .bits_of(&self.shape)
            .map(|_| self.shape.iter().product());
        let expected = expected.ok_or(DistributedFault::Lacks {
            what: "a shape that fits the memory",
        })?;
        let mut found = 0usize;
        for chunk in &self.chunks {
            if !fits(&chunk.offsets, &chunk.sizes, &self.shape) {
                return Err(DistributedFault::ChunkOutside {
                    tensor: self.name.clone(),
                    shape: self.shape.clone(),
                    offsets: chunk.offsets.clone(),
                    sizes: chunk.sizes.clone(),
                });
            }
            found = found.saturating_add(chunk.sizes.iter().product());
        }
        if found < expected {
            return Err(DistributedFault::Gap {
                tensor: self.name.clone(),
                expected,
                found,
            });
        }
        if found > expected {
            return Err(DistributedFault::Overlap {
                tensor: self.name.clone(),
            });
        }
        Ok(())
    }
}

impl Chunk {
    /// Its first element, in each dimension.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Its lengths.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The name of the file that holds it.
    pub fn file(&self) -> &str {
        &self.place.file
    }

    /// Where in the file the stream with it begins, in bytes from the start.
    pub fn file_offset(&self) -> u64 {
        self.place.offset
    }

    /// How long that stream is, in bytes.
    pub fn stream_bytes(&self) -> u64 {
        self.place.length
    }

    pub(super) fn span(&self) -> Span<'_> {
        Span {
            offsets: &self.offsets,
            sizes: &self.sizes,
        }
    }
}

/// Whether a box lies within a shape.
pub(super) fn fits(offsets: &[usize], sizes: &[usize], shape: &[usize]) -> bool {
    offsets.len() == shape.len()
        && sizes.len() == shape.len()
        && offsets
            .iter()
            .zip(sizes)
            .zip(shape)
            .all(|((&offset, &size), &length)| {
                offset.checked_add(size).is_some_and(|end| end <= length)
            })
}

/// Everything a description says.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) tensors: BTreeMap<String, ShardedTensor>,
    pub(super) values: BTreeMap<String, Place>,
    pub(super) paths: BTreeMap<String, Vec<PathPart>>,
}

impl Description {
    /// Checks that nothing lay deeper than values may.
    pub(super) fn check_paths(&self) -> Result<()> {
        let mut paths = self.paths.iter();
        match paths.find(|(_, path)| path.len() > MAX_DEPTH) {
            None => Ok(()),
            Some((name, path)) => Err(DistributedFault::TooDeep {
                name: name.clone(),
                found: path.len(),
                limit: MAX_DEPTH,
            }),
        }
    }
}

/// The names that a description may mention.
fn allow(module: &str, name: &str) -> bool {
    match module {
        METADATA => matches!(
            name,
            "Metadata"
                | "TensorStorageMetadata"
                | "BytesStorageMetadata"
                | "ChunkStorageMetadata"
                | "TensorProperties"
                | "_MEM_FORMAT_ENCODING"
                | "MetadataIndex"
                | "StorageMeta"
        ),
        OLD_METADATA => matches!(name, "TensorProperties" | "MEM_FORMAT_ENCODING"),
        "torch.distributed._shard.metadata" => name == "ShardMetadata",
        FILESYSTEM => name == "_StorageInfo",
        "torch.serialization" => name == "_get_layout",
        "torch" => name == "Size" || Dtype::from_torch_name(name).is_some(),
        "pathlib" | "pathlib._local" => {
            matches!(
                name,
                "PosixPath" | "WindowsPath" | "PurePosixPath" | "PureWindowsPath"
            )
        }
        "collections" => name == "OrderedDict",
        _ => false,
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Description> {
    let (graph, _) = pickle::read(bytes, &allow).map_err(metadata)?;
    Parser { graph: &graph }.description()
}

fn metadata(source: PickleFault) -> DistributedFault {
    DistributedFault::Metadata { source }
}

fn lacks(what: &'static str) -> DistributedFault {
    DistributedFault::Lacks { what }
}

/// What lies where: name and, for parts of tensors, the first element.
type Places = HashMap<(String, Option<Vec<usize>>), Place>;

struct Parser<'g, 'p> {
    graph: &'g Graph<'p>,
}

impl Parser<'_, '_> {
    fn description(&self) -> Result<Description> {
        let root = self
            .fields(self.graph.root(), "Metadata")
            .ok_or_else(|| lacks("the description"))?;
        let entries = |name, what| {
            let field = self
                .graph
                .field(root, name)
                .and_then(|id| self.graph.dict(id));
            field.ok_or_else(|| lacks(what))
        };
        let places = self.places(entries("storage_data", "the places of the parts")?)?;
        let mut description = Description::default();
        for &(key, value) in entries("state_dict_metadata", "the list of tensors")? {
            let name = self
                .graph
                .text(key)
                .ok_or_else(|| lacks("the name of a tensor"))?;
            if self.class(value) == Some("BytesStorageMetadata") {
                let place = places.get(&(name.to_owned(), None));
                let place = place.ok_or_else(|| DistributedFault::NoPlace {
                    name: name.to_owned(),
                    offsets: Vec::new(),
                })?;
                description.values.insert(name.to_owned(), place.clone());
            } else {
                let tensor = self.tensor(name, value, &places)?;
                description.tensors.insert(name.to_owned(), tensor);
            }
        }
        // Absent in checkpoints of the oldest planner, which kept flat names.
        if let Some(paths) = self
            .graph
            .field(root, "planner_data")
            .and_then(|id| self.graph.dict(id))
        {
            description.paths = paths
                .iter()
                .filter_map(|&(name, path)| self.path(name, path))
                .collect();
            description.check_paths()?;
        }
        Ok(description)
    }

    fn path(&self, name: Id, path: Id) -> Option<(String, Vec<PathPart>)> {
        let parts = self.graph.items(path)?.iter().map(|&part| {
            let key = self
                .graph
                .text(part)
                .map(|key| PathPart::Key(key.to_owned()));
            key.or_else(|| self.graph.usize(part).map(PathPart::Index))
        });
        Some((
            self.graph.text(name)?.to_owned(),
            parts.collect::<Option<_>>()?,
        ))
    }

    /// The name of the class of an object.
    fn class(&self, id: Id) -> Option<&str> {
        let call = self.graph.call(id)?;
        Some(self.graph.global(call.callable)?.1)
    }

    /// The fields of an object of this class.
    fn fields(&self, id: Id, class: &str) -> Option<&[(Id, Id)]> {
        if self.class(id)? != class {
            return None;
        }
        self.graph.dict(self.graph.call(id)?.state?)
    }

    fn places(&self, entries: &[(Id, Id)]) -> Result<Places> {
        let what = "the place of a part";
        let mut places = Places::with_capacity(entries.len());
        for &(key, value) in entries {
            let key = self
                .fields(key, "MetadataIndex")
                .ok_or_else(|| lacks(what))?;
            let name = self
                .graph
                .field(key, "fqn")
                .and_then(|id| self.graph.text(id));
            let name = name.ok_or_else(|| lacks(what))?.to_owned();
            let offset = match self.graph.field(key, "offset") {
                Some(id) if !matches!(self.graph.node(id), Node::None) => {
                    Some(self.sizes(id).ok_or_else(|| lacks(what))?)
                }
                _ => None,
            };
            let place = self.place(&name, value)?;
            places.insert((name, offset), place);
        }
        Ok(places)
    }

    fn place(&self, name: &str, id: Id) -> Result<Place> {
        let what = "the place of a part";
        let fields = self.fields(id, "_StorageInfo").ok_or_else(|| lacks(what))?;
        let field = |name| self.graph.field(fields, name);
        let number = |name| {
            field(name)
                .and_then(|id| self.graph.int(id))
                .and_then(|n| u64::try_from(n).ok())
        };
        if let Some(id) = field("transform_descriptors")
            && !matches!(self.graph.node(id), Node::None)
        {
            return Err(DistributedFault::Transformed {
                name: name.to_owned(),
                found: self.graph.kind(id),
            });
        }
        let file = field("relative_path").and_then(|id| self.graph.text(id));
        let file = file.ok_or_else(|| lacks(what))?.to_owned();
        if !is_plain_name(&file) {
            return Err(DistributedFault::FileName { file });
        }
        Ok(Place {
            file,
            offset: number("offset").ok_or_else(|| lacks(what))?,
            length: number("length").ok_or_else(|| lacks(what))?,
        })
    }

    fn tensor(&self, name: &str, id: Id, places: &Places) -> Result<ShardedTensor> {
        let fields = self
            .fields(id, "TensorStorageMetadata")
            .ok_or_else(|| lacks("a tensor"))?;
        let field = |name| self.graph.field(fields, name);
        let dtype = field("properties").and_then(|id| self.dtype(id));
        let shape = field("size").and_then(|id| self.sizes(id));
        let chunks = field("chunks").and_then(|id| self.graph.items(id));
        let chunks = chunks.ok_or_else(|| lacks("the parts of a tensor"))?;
        let chunks: Result<Vec<Chunk>> = chunks
            .iter()
            .map(|&chunk| self.chunk(name, chunk, places))
            .collect();
        let tensor = ShardedTensor {
            name: name.to_owned(),
            dtype: dtype.ok_or_else(|| lacks("the type of a tensor, or knows another"))?,
            shape: shape.ok_or_else(|| lacks("the shape of a tensor"))?,
            chunks: chunks?,
        };
        tensor.check()?;
        Ok(tensor)
    }

    /// The type is the first of the properties, which are a tuple.
    fn dtype(&self, id: Id) -> Option<Dtype> {
        let call: &Call = self.graph.call(id)?;
        let state = call.state?;
        let dtype = match self.graph.dict(state) {
            Some(fields) => self.graph.field(fields, "dtype")?,
            None => *self.graph.tuple(state)?.first()?,
        };
        let (module, name) = self.graph.global(dtype)?;
        (module == "torch")
            .then(|| Dtype::from_torch_name(name))
            .flatten()
    }

    fn chunk(&self, name: &str, id: Id, places: &Places) -> Result<Chunk> {
        let what = "a part of a tensor";
        let fields = self
            .fields(id, "ChunkStorageMetadata")
            .ok_or_else(|| lacks(what))?;
        let field = |name| self.graph.field(fields, name).and_then(|id| self.sizes(id));
        let offsets = field("offsets").ok_or_else(|| lacks(what))?;
        let sizes = field("sizes").ok_or_else(|| lacks(what))?;
        let place = places.get(&(name.to_owned(), Some(offsets.clone())));
        let place = place.or_else(|| places.get(&(name.to_owned(), None)));
        Ok(Chunk {
            place: place.cloned().ok_or_else(|| DistributedFault::NoPlace {
                name: name.to_owned(),
                offsets: offsets.clone(),
            })?,
            offsets,
            sizes,
        })
    }

    /// A `torch.Size`, or a plain tuple or list.
    fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        let graph = self.graph;
        let items = match graph.call_of(id, "torch", "Size") {
            Some(call) => match graph.tuple(call.arguments)? {
                [] => &[],
                [sizes] => graph.items(*sizes)?,
                _ => return None,
            },
            None => graph.items(id)?,
        };
        items.iter().map(|&item| graph.usize(item)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_beyond_the_memory_are_refused_before_parts_are_counted() {
        let huge = vec![1 << 40, 1 << 40];
        let tensor = ShardedTensor {
            name: "w".to_owned(),
            dtype: Dtype::F32,
            shape: huge.clone(),
            chunks: vec![Chunk {
                offsets: vec![0, 0],
                sizes: huge,
                place: Place {
                    file: "__0_0.distcp".to_owned(),
                    offset: 0,
                    length: 0,
                },
            }],
        };
        let fault = tensor.check().unwrap_err();
        assert!(matches!(fault, DistributedFault::Lacks { .. }), "{fault}");
    }

    #[test]
    fn names_from_too_deep_are_refused() {
        let path = |parts| vec![PathPart::Index(0); parts];
        let mut description = Description::default();
        description.paths.insert("fine".to_owned(), path(MAX_DEPTH));
        assert!(description.check_paths().is_ok());
        description.paths.insert("deep".to_owned(), path(1_000_000));
        let fault = description.check_paths().unwrap_err();
        assert!(
            matches!(&fault, DistributedFault::TooDeep { name, .. } if name == "deep"),
            "{fault}"
        );
    }
}
