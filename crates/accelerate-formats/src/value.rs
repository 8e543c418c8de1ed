//! Plain Python values, as optimizer states and the like hold them.

use crate::dtype::Dtype;
use crate::tensor::StoredTensor;

/// A value that a file of `torch.save` may hold.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A `float`.
    Float(f64),
    /// A `complex`: real and imaginary part.
    Complex(f64, f64),
    /// A `str`.
    Str(String),
    /// `bytes` or a `bytearray`.
    Bytes(Vec<u8>),
    /// A `list`.
    List(Vec<Value>),
    /// A `tuple`.
    Tuple(Vec<Value>),
    /// A `set` or `frozenset`, in the order of the file.
    Set(Vec<Value>),
    /// A `dict` or `OrderedDict`.
    Dict(Dict),
    /// A `torch.Size`.
    Size(Vec<usize>),
    /// A `torch.dtype`.
    Dtype(Dtype),
    /// A `torch.device`.
    Device {
        /// `cpu`, `cuda`, and so on.
        kind: String,
        /// Which one of its kind.
        index: Option<u32>,
    },
    /// A tensor or parameter.
    Tensor(Box<StoredTensor>),
    /// An array of numpy, in row-major order.
    Array(Box<StoredTensor>),
    /// An object of a class that is not known. Only readers of whole checkpoints keep such objects;
    /// nothing of the class is ever run.
    Opaque(Box<Opaque>),
}

/// An object whose class is not known: what its pickle says, and nothing more.
#[derive(Debug, Clone)]
pub struct Opaque {
    /// Module and name of the class.
    pub class: String,
    /// What it was called with.
    pub arguments: Vec<Value>,
    /// Its fields, mostly a [`Value::Dict`].
    pub state: Option<Value>,
}

impl Value {
    /// What it is, in a word of Python's.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an int",
            Self::Float(_) => "a float",
            Self::Complex(..) => "a complex number",
            Self::Str(_) => "a str",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Set(_) => "a set",
            Self::Dict(_) => "a dict",
            Self::Size(_) => "a torch.Size",
            Self::Dtype(_) => "a torch.dtype",
            Self::Device { .. } => "a torch.device",
            Self::Tensor(_) => "a tensor",
            Self::Array(_) => "a numpy array",
            Self::Opaque(_) => "an object of an unknown class",
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The whole number, if it is one that can count something here.
    pub fn as_usize(&self) -> Option<usize> {
        self.as_int().and_then(|value| usize::try_from(value).ok())
    }

    /// The number, if it is a real one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(value) => Some(value),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub fn as_slice(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) | Self::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The dict, if it is one.
    pub fn as_dict(&self) -> Option<&Dict> {
        match self {
            Self::Dict(dict) => Some(dict),
            _ => None,
        }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&StoredTensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// What stands under `key`, if this is a dict that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_dict()?.get(key)
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

from! {
    bool => Bool, i32 => Int, i64 => Int, u32 => Int, u64 => Int, i128 => Int, f64 => Float,
    &str => Str, String => Str, Vec<Value> => List, Dict => Dict, StoredTensor => Tensor,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// A `dict`, in the order in which keys were put in.
///
/// Keys may be any value; looking one up by text goes through all of them.
#[derive(Debug, Clone, Default)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
}

impl Dict {
    /// A dict without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// What stands under this text.
    pub fn get(&self, key: &str) -> Option<&Value> {
        // As in Python, the last one counts where a key was put in twice.
        let mut entries = self.entries.iter().rev();
        entries
            .find(|(name, _)| name.as_str() == Some(key))
            .map(|(_, value)| value)
    }

    /// Adds a key that is not there yet.
    pub fn push(&mut self, key: impl Into<Value>, value: impl Into<Value>) {
        self.entries.push((key.into(), value.into()));
    }

    /// Adds a key that is not there yet, and gives the dict back.
    #[must_use]
    pub fn with(mut self, key: impl Into<Value>, value: impl Into<Value>) -> Self {
        self.push(key, value);
        self
    }

    /// All keys and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Value, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl FromIterator<(Value, Value)> for Dict {
    fn from_iter<I: IntoIterator<Item = (Value, Value)>>(entries: I) -> Self {
        Self {
            entries: entries.into_iter().collect(),
        }
    }
}

impl IntoIterator for Dict {
    type Item = (Value, Value);
    type IntoIter = std::vec::IntoIter<(Value, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}
