//! From values to a pickle, and the storages it refers to.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::dtype::Dtype;
use crate::error::{Result, TorchWriteFault};
use crate::pickle::{MAX_DEPTH, PickleWriter};
use crate::tensor::{Storage, StoredTensor};
use crate::value::Value;

/// The pickle of a value and, in the order of their keys, its storages.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) pickle: Vec<u8>,
    pub(super) storages: Vec<Source>,
}

/// Where the bytes of a storage come from.
#[derive(Debug)]
pub(super) enum Source {
    Whole(Arc<Storage>),
    /// A tensor whose bytes must be turned or gathered on the way.
    Gathered(StoredTensor),
}

impl Source {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(storage) => storage.len(),
            Self::Gathered(tensor) => tensor.byte_len(),
        }
    }

    pub(super) fn storage(&self) -> Option<&Arc<Storage>> {
        match self {
            Self::Whole(storage) => Some(storage),
            Self::Gathered(_) => None,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Whole(storage) if storage.is_pending())
    }

    pub(super) fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Whole(storage) => storage.bytes(),
            Self::Gathered(tensor) => tensor.bytes(),
        }
    }
}

pub(super) fn encode(value: &Value) -> Result<Encoded, TorchWriteFault> {
    let mut encoder = Encoder {
        pickle: PickleWriter::new(),
        storages: Vec::new(),
        keys: HashMap::new(),
    };
    encoder.value(value, MAX_DEPTH)?;
    Ok(Encoded {
        pickle: encoder.pickle.finish(),
        storages: encoder.storages,
    })
}

struct Encoder {
    pickle: PickleWriter,
    storages: Vec<Source>,
    /// The key of each storage by its address, which `storages` keeps alive.
    keys: HashMap<*const Storage, usize>,
}

impl Encoder {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), TorchWriteFault> {
        let Some(below) = depth.checked_sub(1) else {
            return Err(TorchWriteFault::TooDeep { limit: MAX_DEPTH });
        };
        match value {
            Value::None => self.pickle.none(),
            Value::Bool(value) => self.pickle.bool(*value),
            Value::Int(value) => self.pickle.int(*value),
            Value::Float(value) => self.pickle.float(*value),
            Value::Complex(real, imaginary) => {
                self.pickle.global("__builtin__", "complex");
                self.pickle.float(*real);
                self.pickle.float(*imaginary);
                self.pickle.tuple_of(2);
                self.pickle.reduce();
            }
            Value::Str(text) => self.pickle.text(text),
            Value::Bytes(bytes) => self.pickle.byte_string(bytes),
            Value::List(items) => self.list(items, below)?,
            Value::Tuple(items) => {
                self.pickle.mark();
                items.iter().try_for_each(|item| self.value(item, below))?;
                self.pickle.tuple();
            }
            Value::Set(items) => {
                self.pickle.global("__builtin__", "set");
                self.list(items, below)?;
                self.pickle.tuple_of(1);
                self.pickle.reduce();
            }
            Value::Dict(dict) => {
                self.pickle.empty_dict();
                self.pickle.mark();
                for (key, value) in dict.iter() {
                    self.value(key, below)?;
                    self.value(value, below)?;
                }
                self.pickle.set_items();
            }
            Value::Size(sizes) => {
                self.pickle.global("torch", "Size");
                self.pickle.sizes(sizes);
                self.pickle.tuple_of(1);
                self.pickle.reduce();
            }
            Value::Dtype(dtype) => self.pickle.global("torch", torch_name(*dtype)?),
            Value::Device { kind, index } => {
                self.pickle.global("torch", "device");
                self.pickle.text(kind);
                if let Some(index) = index {
                    self.pickle.int(i128::from(*index));
                }
                self.pickle.tuple_of(1 + u8::from(index.is_some()));
                self.pickle.reduce();
            }
            Value::Tensor(tensor) => self.tensor_or_parameter(tensor)?,
            Value::Array(array) => self.array(array)?,
            Value::Opaque(opaque) => {
                return Err(TorchWriteFault::UnknownClass {
                    class: opaque.class.clone(),
                });
            }
        }
        Ok(())
    }

    fn list(&mut self, items: &[Value], depth: usize) -> Result<(), TorchWriteFault> {
        self.pickle.empty_list();
        self.pickle.mark();
        items.iter().try_for_each(|item| self.value(item, depth))?;
        self.pickle.appends();
        Ok(())
    }

    fn tensor_or_parameter(&mut self, tensor: &StoredTensor) -> Result<(), TorchWriteFault> {
        if !tensor.is_parameter() {
            return self.tensor(tensor, tensor.requires_grad());
        }
        self.pickle.global("torch._utils", "_rebuild_parameter");
        // The data of a parameter is not itself one that wants a gradient.
        self.tensor(tensor, false)?;
        self.pickle.bool(tensor.requires_grad());
        self.no_hooks();
        self.pickle.tuple_of(3);
        self.pickle.reduce();
        Ok(())
    }

    fn tensor(
        &mut self,
        tensor: &StoredTensor,
        requires_grad: bool,
    ) -> Result<(), TorchWriteFault> {
        let class = storage_class(tensor.dtype());
        let rebuild = if class.is_some() {
            "_rebuild_tensor_v2"
        } else {
            "_rebuild_tensor_v3"
        };
        self.pickle.global("torch._utils", rebuild);
        self.pickle.mark();
        // What has to be turned gets a storage of its own.
        let turned = tensor.swaps();
        let key = if turned {
            self.storages.push(Source::Gathered(tensor.clone()));
            self.storages.len() - 1
        } else {
            self.key(tensor.storage())
        };
        let bytes = if turned {
            tensor.byte_len()
        } else {
            tensor.storage().len()
        };
        self.storage(key, class, tensor.dtype(), bytes);
        if turned {
            self.pickle.usize(0);
            self.pickle.sizes(tensor.shape());
            let rows = crate::strided::row_major(tensor.shape()).unwrap_or_default();
            self.pickle.sizes(&rows);
        } else {
            self.pickle.usize(tensor.offset());
            self.pickle.sizes(tensor.shape());
            self.pickle.sizes(tensor.strides());
        }
        self.pickle.bool(requires_grad);
        self.no_hooks();
        if class.is_none() {
            self.pickle.global("torch", torch_name(tensor.dtype())?);
        }
        self.pickle.tuple();
        self.pickle.reduce();
        Ok(())
    }

    fn key(&mut self, storage: &Arc<Storage>) -> usize {
        *self.keys.entry(Arc::as_ptr(storage)).or_insert_with(|| {
            self.storages.push(Source::Whole(Arc::clone(storage)));
            self.storages.len() - 1
        })
    }

    fn storage(&mut self, key: usize, class: Option<&str>, dtype: Dtype, bytes: usize) {
        self.pickle.mark();
        self.pickle.text("storage");
        match class {
            Some(class) => self.pickle.global("torch", class),
            None => self.pickle.global("torch.storage", "UntypedStorage"),
        }
        self.pickle.text(&key.to_string());
        self.pickle.text("cpu");
        let size = if class.is_some() {
            dtype.size_in_bits() / 8
        } else {
            1
        };
        self.pickle.usize(bytes / size);
        self.pickle.tuple();
        self.pickle.persistent();
    }

    fn no_hooks(&mut self) {
        self.pickle.global("collections", "OrderedDict");
        self.pickle.tuple_of(0);
        self.pickle.reduce();
    }

    /// As numpy writes itself: an empty array that is then given shape, type and bytes.
    fn array(&mut self, array: &StoredTensor) -> Result<(), TorchWriteFault> {
        let name = array_type(array.dtype()).ok_or(TorchWriteFault::ArrayType {
            dtype: array.dtype(),
        })?;
        let bytes = array.bytes().map_err(|_| TorchWriteFault::PendingArray)?;
        self.pickle.global("numpy._core.multiarray", "_reconstruct");
        self.pickle.global("numpy", "ndarray");
        self.pickle.sizes(&[0]);
        self.pickle.byte_string(b"b");
        self.pickle.tuple_of(3);
        self.pickle.reduce();
        self.pickle.mark();
        self.pickle.usize(1);
        self.pickle.sizes(array.shape());
        self.pickle.global("numpy", "dtype");
        self.pickle.text(name);
        self.pickle.bool(false);
        self.pickle.bool(true);
        self.pickle.tuple_of(3);
        self.pickle.reduce();
        self.pickle.mark();
        self.pickle.usize(3);
        self.pickle.text(if array.dtype().component_bytes() == 1 {
            "|"
        } else {
            "<"
        });
        (0..3).for_each(|_| self.pickle.none());
        self.pickle.int(-1);
        self.pickle.int(-1);
        self.pickle.int(0);
        self.pickle.tuple();
        self.pickle.build();
        self.pickle.bool(false);
        self.pickle.byte_string(&bytes);
        self.pickle.tuple();
        self.pickle.build();
        Ok(())
    }
}

fn torch_name(dtype: Dtype) -> Result<&'static str, TorchWriteFault> {
    dtype.torch_name().ok_or(TorchWriteFault::Dtype { dtype })
}

/// The class of storages that is bound to a type; younger types have none.
fn storage_class(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F32 => "FloatStorage",
        Dtype::F64 => "DoubleStorage",
        Dtype::F16 => "HalfStorage",
        Dtype::Bf16 => "BFloat16Storage",
        Dtype::I64 => "LongStorage",
        Dtype::I32 => "IntStorage",
        Dtype::I16 => "ShortStorage",
        Dtype::I8 => "CharStorage",
        Dtype::U8 => "ByteStorage",
        Dtype::Bool => "BoolStorage",
        Dtype::C64 => "ComplexFloatStorage",
        Dtype::C128 => "ComplexDoubleStorage",
        _ => return None,
    })
}

fn array_type(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Bool => "b1",
        Dtype::U8 => "u1",
        Dtype::U16 => "u2",
        Dtype::U32 => "u4",
        Dtype::U64 => "u8",
        Dtype::I8 => "i1",
        Dtype::I16 => "i2",
        Dtype::I32 => "i4",
        Dtype::I64 => "i8",
        Dtype::F16 => "f2",
        Dtype::F32 => "f4",
        Dtype::F64 => "f8",
        Dtype::C64 => "c8",
        Dtype::C128 => "c16",
        _ => return None,
    })
}
