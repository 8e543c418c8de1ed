//! The names that are known. This is the list of everything a pickle may mention.

use crate::dtype::Dtype;

/// What a known global stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Tensor1,
    Tensor2,
    Tensor3,
    Parameter,
    ParameterWithState,
    Size,
    Device,
    Dtype(Dtype),
    Storage(Option<Dtype>),
    OrderedDict,
    Counter,
    DefaultDict,
    Dict,
    List,
    Tuple,
    Set,
    Bytes,
    Encode,
    Complex,
    ArrayClass,
    ArrayNew,
    ArrayDtype,
    Scalar,
}

pub(super) fn known(module: &str, name: &str) -> Option<Known> {
    Some(match (module, name) {
        ("torch._utils", "_rebuild_tensor") => Known::Tensor1,
        ("torch._utils", "_rebuild_tensor_v2") => Known::Tensor2,
        ("torch._utils", "_rebuild_tensor_v3") => Known::Tensor3,
        ("torch._utils", "_rebuild_parameter") => Known::Parameter,
        ("torch._utils", "_rebuild_parameter_with_state") => Known::ParameterWithState,
        ("torch", "Size") => Known::Size,
        ("torch", "device") => Known::Device,
        ("torch.storage", "UntypedStorage") | ("torch", "UntypedStorage") => Known::Storage(None),
        ("torch" | "torch.cuda", name) if name.ends_with("Storage") => {
            Known::Storage(Some(storage_dtype(name)?))
        }
        ("torch", name) => Known::Dtype(Dtype::from_torch_name(name)?),
        ("collections", "OrderedDict") => Known::OrderedDict,
        ("collections", "Counter") => Known::Counter,
        ("collections", "defaultdict") => Known::DefaultDict,
        ("builtins" | "__builtin__", "dict") => Known::Dict,
        ("builtins" | "__builtin__", "list") => Known::List,
        ("builtins" | "__builtin__", "tuple") => Known::Tuple,
        ("builtins" | "__builtin__", "set" | "frozenset") => Known::Set,
        ("builtins" | "__builtin__", "bytes" | "bytearray") => Known::Bytes,
        ("builtins" | "__builtin__", "complex") => Known::Complex,
        ("_codecs", "encode") => Known::Encode,
        ("numpy", "ndarray") => Known::ArrayClass,
        ("numpy", "dtype") => Known::ArrayDtype,
        ("numpy._core.multiarray" | "numpy.core.multiarray", "_reconstruct") => Known::ArrayNew,
        ("numpy._core.multiarray" | "numpy.core.multiarray", "scalar") => Known::Scalar,
        _ => return None,
    })
}

fn storage_dtype(class: &str) -> Option<Dtype> {
    Some(match class.strip_suffix("Storage")? {
        "Float" => Dtype::F32,
        "Double" => Dtype::F64,
        "Half" => Dtype::F16,
        "BFloat16" => Dtype::Bf16,
        "Long" => Dtype::I64,
        "Int" => Dtype::I32,
        "Short" => Dtype::I16,
        "Char" => Dtype::I8,
        "Byte" => Dtype::U8,
        "Bool" => Dtype::Bool,
        "ComplexFloat" => Dtype::C64,
        "ComplexDouble" => Dtype::C128,
        _ => return None,
    })
}

/// Whether a global stands for a tensor or a plain value.
pub(super) fn allow_plain(module: &str, name: &str) -> bool {
    known(module, name).is_some()
}
