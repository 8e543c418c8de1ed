//! From the graph of a pickle to values.

use std::sync::Arc;

use super::known::{Known, allow_plain, known};
use crate::dtype::Dtype;
use crate::error::{PickleFault, TorchFault};
use crate::pickle::{Call, Graph, Id, MAX_DEPTH, Node};
use crate::tensor::{Storage, StoredTensor};
use crate::value::{Dict, Opaque, Value};

/// How many values each object of a pickle may become on average, as one that stands in several
/// places does, and how many are free.
const VALUES_PER_OBJECT: usize = 16;
const FREE_VALUES: usize = 1 << 16;
/// How many bytes of text each byte of a pickle may become on average, and how many are free.
const TEXT_PER_BYTE: usize = 4;
const FREE_TEXT_BYTES: usize = 16 << 20;

pub(super) type Result<T, E = TorchFault> = std::result::Result<T, E>;

/// What becomes of classes that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strangers {
    /// They are refused by name.
    Refused,
    /// They are kept as [`Value::Opaque`]. Checkpoints of DeepSpeed hold some of its own objects
    /// beside the tensors.
    Kept,
}

impl Strangers {
    pub(crate) fn allow(self, module: &str, name: &str) -> bool {
        self == Self::Kept || allow_plain(module, name)
    }
}

/// Where the bytes of tensors come from.
pub(super) trait Storages {
    /// The storage of this key, which must have at least so many bytes.
    fn storage(&mut self, key: &str, bytes: usize) -> Result<Arc<Storage>>;
}

/// A storage as a persistent id names it.
#[derive(Debug)]
pub(super) struct StorageId<'p> {
    pub(super) key: &'p str,
    /// The type of its elements; none for one that counts bytes.
    pub(super) dtype: Option<Dtype>,
    /// The number of its elements, or bytes.
    pub(super) count: usize,
    /// Where a view of it begins, in elements (the old format only).
    pub(super) view_offset: usize,
}

impl StorageId<'_> {
    /// Its size in bytes, if that fits.
    pub(super) fn bytes(&self) -> Option<usize> {
        let size = self.dtype.map_or(1, |dtype| dtype.size_in_bits() / 8);
        self.count.checked_mul(size)
    }
}

/// Reads a persistent id.
pub(super) fn storage_id<'p>(graph: &Graph<'p>, id: Id) -> Result<StorageId<'p>, PickleFault> {
    let fault = || PickleFault::Unexpected {
        expected: "the id of a storage: its class, key, place and size",
        found: graph.kind(id),
    };
    let parts = graph.tuple(id).ok_or_else(fault)?;
    let (&[marker, class, key, _place, count], rest) =
        parts.split_first_chunk().ok_or_else(fault)?;
    if graph.text(marker) != Some("storage") {
        return Err(fault());
    }
    let (module, name) = graph.global(class).ok_or_else(fault)?;
    let Some(Known::Storage(dtype)) = known(module, name) else {
        return Err(PickleFault::Refused {
            name: format!("{module}.{name}"),
        });
    };
    let view_offset = match rest.first().and_then(|&view| graph.tuple(view)) {
        Some(&[_, offset, _]) => graph.usize(offset).ok_or_else(fault)?,
        _ => 0,
    };
    Ok(StorageId {
        key: graph.text(key).ok_or_else(fault)?,
        dtype,
        count: graph.usize(count).ok_or_else(fault)?,
        view_offset,
    })
}

/// Gives a graph its meaning.
pub(super) struct Decoder<'g, 'p> {
    pub(super) graph: &'g Graph<'p>,
    storages: &'g mut dyn Storages,
    strangers: Strangers,
    most_values: usize,
    values_left: usize,
    most_text: usize,
    text_left: usize,
}

impl<'g, 'p> Decoder<'g, 'p> {
    pub(crate) fn new(
        graph: &'g Graph<'p>,
        storages: &'g mut dyn Storages,
        strangers: Strangers,
    ) -> Self {
        let most_values = graph.nodes().len() * VALUES_PER_OBJECT + FREE_VALUES;
        let most_text = graph.bytes() * TEXT_PER_BYTE + FREE_TEXT_BYTES;
        Self {
            graph,
            storages,
            strangers,
            most_values,
            values_left: most_values,
            most_text,
            text_left: most_text,
        }
    }

    /// The value of the whole pickle.
    pub(crate) fn root(&mut self) -> Result<Value> {
        self.value(self.graph.root(), MAX_DEPTH)
    }

    pub(super) fn value(&mut self, id: Id, depth: usize) -> Result<Value> {
        let below = depth.checked_sub(1);
        let below = below.ok_or(PickleFault::TooDeep { limit: MAX_DEPTH })?;
        let left = self.values_left.checked_sub(1);
        self.values_left = left.ok_or(PickleFault::TooManyObjects {
            limit: self.most_values,
        })?;
        Ok(match self.graph.node(id) {
            Node::None => Value::None,
            Node::Bool(value) => Value::Bool(*value),
            Node::Int(value) => Value::Int(i128::from(*value)),
            Node::BigInt(value) => Value::Int(**value),
            Node::Float(value) => Value::Float(*value),
            Node::Str(text) => Value::Str(self.text(text)?.to_owned()),
            Node::Bytes(bytes) => {
                self.charge(bytes.len())?;
                Value::Bytes(bytes.to_vec())
            }
            Node::List(items) => Value::List(self.values(items, below)?),
            Node::Tuple(items) => Value::Tuple(self.values(items, below)?),
            Node::Set(items) => Value::Set(self.values(items, below)?),
            Node::Dict(entries) => Value::Dict(self.entries(entries, below)?),
            Node::Global(global) => self.global(**global)?,
            Node::Call(call) => self.call(call, below)?,
            Node::Persistent(_) => {
                return Err(self.graph.unexpected("a value", id).into());
            }
        })
    }

    fn text(&mut self, text: &'p str) -> Result<&'p str> {
        self.charge(text.len())?;
        Ok(text)
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        let left = self.text_left.checked_sub(bytes);
        self.text_left = left.ok_or(PickleFault::TooMuchText {
            limit_bytes: self.most_text,
        })?;
        Ok(())
    }

    fn values(&mut self, ids: &[Id], depth: usize) -> Result<Vec<Value>> {
        ids.iter().map(|&id| self.value(id, depth)).collect()
    }

    fn entries(&mut self, entries: &[(Id, Id)], depth: usize) -> Result<Dict> {
        entries
            .iter()
            .map(|&(key, value)| Ok((self.value(key, depth)?, self.value(value, depth)?)))
            .collect()
    }

    /// A class or function that stands for itself.
    fn global(&mut self, (module, name): (&'p str, &'p str)) -> Result<Value> {
        match known(module, name) {
            Some(Known::Dtype(dtype)) => Ok(Value::Dtype(dtype)),
            None if self.strangers == Strangers::Kept => {
                self.opaque((module, name), Vec::new(), None)
            }
            _ => Err(refused(module, name)),
        }
    }

    fn opaque(
        &mut self,
        (module, name): (&str, &str),
        arguments: Vec<Value>,
        state: Option<Value>,
    ) -> Result<Value> {
        self.charge(module.len() + name.len())?;
        Ok(Value::Opaque(Box::new(Opaque {
            class: format!("{module}.{name}"),
            arguments,
            state,
        })))
    }

    fn call(&mut self, call: &Call, depth: usize) -> Result<Value> {
        let graph = self.graph;
        let callable = graph.global(call.callable);
        let (module, name) = callable.ok_or_else(|| graph.unexpected("a class", call.callable))?;
        let arguments = graph.tuple(call.arguments).unwrap_or_default();
        let wrong = |expected| {
            TorchFault::from(PickleFault::Arguments {
                name: format!("{module}.{name}"),
                expected,
            })
        };
        match known(module, name) {
            Some(Known::Tensor1 | Known::Tensor2 | Known::Tensor3) => {
                Ok(Value::Tensor(Box::new(self.tensor(call, arguments)?)))
            }
            Some(Known::Parameter | Known::ParameterWithState) => self
                .parameter(arguments, depth)?
                .ok_or_else(|| wrong("a tensor and a bool")),
            Some(Known::Size) => match arguments {
                [] => Ok(Value::Size(Vec::new())),
                [sizes] => self.sizes(*sizes).map(Value::Size),
                _ => Err(wrong("a tuple of sizes")),
            },
            Some(Known::Device) => self
                .device(arguments)
                .ok_or_else(|| wrong("a kind and a number")),
            Some(Known::OrderedDict | Known::Counter | Known::DefaultDict | Known::Dict) => {
                self.mapping(call, arguments, depth)
            }
            Some(Known::List) => self.collection(call, arguments, depth).map(Value::List),
            Some(Known::Tuple) => self.collection(call, arguments, depth).map(Value::Tuple),
            Some(Known::Set) => self.collection(call, arguments, depth).map(Value::Set),
            Some(Known::Bytes | Known::Encode) => self
                .bytes(arguments, depth)?
                .ok_or_else(|| wrong("text and `latin1`")),
            Some(Known::Complex) => match arguments {
                &[real, imaginary] => match (self.float(real), self.float(imaginary)) {
                    (Some(real), Some(imaginary)) => Ok(Value::Complex(real, imaginary)),
                    _ => Err(wrong("two numbers")),
                },
                _ => Err(wrong("two numbers")),
            },
            Some(Known::ArrayNew) => self
                .array(call, depth)?
                .ok_or_else(|| wrong("an array of plain numbers")),
            Some(Known::Scalar) => self
                .scalar(arguments, depth)?
                .ok_or_else(|| wrong("the type and the bytes of one number")),
            Some(Known::Dtype(_) | Known::Storage(_) | Known::ArrayClass | Known::ArrayDtype) => {
                Err(refused(module, name))
            }
            None if self.strangers == Strangers::Kept => self.stranger(call, (module, name), depth),
            None => Err(refused(module, name)),
        }
    }

    fn stranger(&mut self, call: &Call, class: (&str, &str), depth: usize) -> Result<Value> {
        let arguments = self.graph.tuple(call.arguments).unwrap_or_default();
        let arguments = self.values(arguments, depth)?;
        let state = match call.state {
            Some(state) => Some(self.value(state, depth)?),
            None if !call.entries.is_empty() => {
                Some(Value::Dict(self.entries(&call.entries, depth)?))
            }
            None if !call.items.is_empty() => Some(Value::List(self.values(&call.items, depth)?)),
            None => None,
        };
        self.opaque(class, arguments, state)
    }

    /// `_rebuild_tensor` and its successors: storage, offset, shape, strides, whether it wants a
    /// gradient, hooks, and from version 3 the type.
    fn tensor(&mut self, call: &Call, arguments: &[Id]) -> Result<StoredTensor> {
        let graph = self.graph;
        let (module, name) = graph.global(call.callable).unwrap_or_default();
        let wrong = |expected| PickleFault::Arguments {
            name: format!("{module}.{name}"),
            expected,
        };
        let (&[storage, offset, shape, strides], rest) = arguments
            .split_first_chunk()
            .ok_or_else(|| wrong("a storage, an offset, a shape and strides"))?;
        let Node::Persistent(storage) = *graph.node(storage) else {
            return Err(graph.unexpected("a storage", storage).into());
        };
        let storage = storage_id(graph, storage)?;
        let dtype = match rest.get(2).and_then(|&dtype| graph.global(dtype)) {
            Some((module, name)) => match known(module, name) {
                Some(Known::Dtype(dtype)) => dtype,
                _ => return Err(refused(module, name)),
            },
            None => storage
                .dtype
                .ok_or_else(|| wrong("a type, since the storage has none"))?,
        };
        let bytes = storage
            .bytes()
            .ok_or_else(|| wrong("a storage that fits the memory"))?;
        let offset = graph
            .usize(offset)
            .and_then(|offset| offset.checked_add(storage.view_offset));
        let offset = offset.ok_or_else(|| wrong("an offset within the storage"))?;
        let (shape, strides) = (self.sizes(shape)?, self.sizes(strides)?);
        let requires_grad = rest.first().and_then(|&id| graph.bool(id)).unwrap_or(false);
        let storage = self.storages.storage(storage.key, bytes)?;
        let tensor = StoredTensor::strided(dtype, shape, strides, offset, storage)?;
        Ok(tensor.with_requires_grad(requires_grad))
    }

    fn parameter(&mut self, arguments: &[Id], depth: usize) -> Result<Option<Value>> {
        let (Some(&tensor), Some(&requires_grad)) = (arguments.first(), arguments.get(1)) else {
            return Ok(None);
        };
        let Some(requires_grad) = self.graph.bool(requires_grad) else {
            return Ok(None);
        };
        Ok(match self.value(tensor, depth)? {
            Value::Tensor(tensor) => Some(Value::Tensor(Box::new(
                tensor.into_parameter(requires_grad),
            ))),
            _ => None,
        })
    }

    pub(super) fn sizes(&mut self, id: Id) -> Result<Vec<usize>> {
        let graph = self.graph;
        // A `torch.Size` may stand where a tuple does.
        let id = match graph
            .call_of(id, "torch", "Size")
            .map(|call| call.arguments)
        {
            Some(arguments) => match graph.tuple(arguments) {
                Some(&[sizes]) => sizes,
                _ => return Ok(Vec::new()),
            },
            None => id,
        };
        let items = graph
            .items(id)
            .ok_or_else(|| graph.unexpected("a tuple of sizes", id))?;
        self.charge(items.len() * size_of::<usize>())?;
        let sizes = items.iter().map(|&item| {
            graph
                .usize(item)
                .ok_or_else(|| graph.unexpected("a size", item).into())
        });
        sizes.collect()
    }

    fn device(&mut self, arguments: &[Id]) -> Option<Value> {
        let (&kind, rest) = arguments.split_first()?;
        let kind = self.graph.text(kind)?.to_owned();
        let index = match rest {
            [] => None,
            [index] => Some(u32::try_from(self.graph.int(*index)?).ok()?),
            _ => return None,
        };
        Some(Value::Device { kind, index })
    }

    /// A dict that was made empty, or from a list of pairs, and filled. What else it was given
    /// (`_metadata` of a state dict) is left out.
    fn mapping(&mut self, call: &Call, arguments: &[Id], depth: usize) -> Result<Value> {
        let graph = self.graph;
        let mut entries = Vec::new();
        for &argument in arguments {
            match graph.node(argument) {
                Node::Dict(given) => entries.extend_from_slice(given),
                Node::List(pairs) => {
                    for &pair in pairs {
                        let Some(&[key, value]) = graph.items(pair) else {
                            return Err(graph.unexpected("a pair", pair).into());
                        };
                        entries.push((key, value));
                    }
                }
                // The factory of a `defaultdict` is not called.
                Node::Global(_) | Node::None => {}
                _ => return Err(graph.unexpected("a dict", argument).into()),
            }
        }
        entries.extend_from_slice(&call.entries);
        self.entries(&entries, depth).map(Value::Dict)
    }

    fn collection(&mut self, call: &Call, arguments: &[Id], depth: usize) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for &argument in arguments {
            match self.graph.node(argument) {
                Node::List(items) | Node::Set(items) => values.extend(self.values(items, depth)?),
                Node::Tuple(items) => values.extend(self.values(items, depth)?),
                _ => return Err(self.graph.unexpected("a list", argument).into()),
            }
        }
        values.extend(self.values(&call.items, depth)?);
        Ok(values)
    }

    /// Bytes as older protocols write them: text in which each character is one byte.
    fn bytes(&mut self, arguments: &[Id], depth: usize) -> Result<Option<Value>> {
        let graph = self.graph;
        let bytes = match arguments {
            [] => Vec::new(),
            [bytes, ..] => match graph.node(*bytes) {
                Node::Bytes(bytes) => bytes.to_vec(),
                Node::Call(_) => match self.value(*bytes, depth)? {
                    Value::Bytes(bytes) => bytes,
                    _ => return Ok(None),
                },
                Node::Str(text) => match latin1(text) {
                    Some(bytes) => bytes,
                    None => return Ok(None),
                },
                _ => return Ok(None),
            },
        };
        let encoding = arguments.get(1).map(|&encoding| graph.text(encoding));
        if !matches!(encoding, None | Some(Some("latin1" | "latin-1"))) {
            return Ok(None);
        }
        self.charge(bytes.len())?;
        Ok(Some(Value::Bytes(bytes)))
    }

    fn float(&self, id: Id) -> Option<f64> {
        match self.graph.node(id) {
            Node::Float(value) => Some(*value),
            Node::Int(value) => Some(*value as f64),
            _ => None,
        }
    }
}

fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars()
        .map(|char| u8::try_from(u32::from(char)).ok())
        .collect()
}

fn refused(module: &str, name: &str) -> TorchFault {
    PickleFault::Refused {
        name: format!("{module}.{name}"),
    }
    .into()
}
