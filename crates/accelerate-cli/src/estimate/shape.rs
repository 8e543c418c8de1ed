//! A model as device maps know it, from its configuration or from the names in its files.

use std::collections::HashMap;

use accelerate_formats::Dtype;
use accelerate_plan::device_map::{ElementType, ModuleShape, TensorShape};
use indexmap::IndexMap;

use super::{
    module::{Module, Tensor},
    skeleton::Skeleton,
    source::Model,
    stored::{Role, Stored, StoredTensor, numbered_block},
};

/// A model as device maps know it.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) root: ModuleShape,
    /// Classes that stay in one place.
    pub(crate) no_split: Vec<String>,
    /// Tensors that keep their type in whatever type the model is loaded.
    pub(crate) kept: IndexMap<String, ElementType>,
}

/// The class of a block that only its name tells of.
const BLOCK: &str = "Block";

impl Shape {
    /// The shape of what was found.
    pub(crate) fn of(model: &Model) -> Self {
        match (&model.skeleton, &model.stored) {
            (Some(skeleton), _) => of_skeleton(skeleton),
            (None, Some(stored)) => of_stored(stored),
            (None, None) => Self {
                root: ModuleShape::default(),
                no_split: Vec::new(),
                kept: IndexMap::new(),
            },
        }
    }

    /// The names of the repeated blocks of a model, in order: outermost modules that may not be
    /// split and are called by a number.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        self.root.visit(&mut |name, module| {
            let is_numbered = module.name.bytes().all(|byte| byte.is_ascii_digit());
            let is_inside = |block: &String| {
                let rest = name.strip_prefix(block.as_str());
                rest.is_some_and(|rest| rest.starts_with('.'))
            };
            let is_block = !name.is_empty() && is_numbered && self.no_split.contains(&module.class);
            if is_block && !blocks.last().is_some_and(is_inside) {
                blocks.push(name.to_owned());
            }
        });
        blocks
    }
}

fn of_skeleton(skeleton: &Skeleton) -> Shape {
    let mut root = module_shape("", &skeleton.root, &mut 0);
    let mut homes = HashMap::new();
    first_of_each_shape(&skeleton.root, &root, &mut homes);
    tie(&skeleton.root, &mut root, &homes);
    Shape {
        root,
        no_split: skeleton.no_split.iter().map(ToString::to_string).collect(),
        kept: IndexMap::new(),
    }
}

fn module_shape(name: &str, module: &Module, next: &mut u64) -> ModuleShape {
    let mut tensor = |tensor: &Tensor| {
        *next += 1;
        let dtype = element_type(tensor.dtype);
        TensorShape::parameter(tensor.name, tensor.elements(), dtype, *next)
    };
    let parameters = module.parameters.iter().map(&mut tensor).collect();
    let buffers = module.buffers.iter().map(|buffer| TensorShape {
        trainable: false,
        ..tensor(buffer)
    });
    ModuleShape {
        name: name.to_owned(),
        class: module.class.to_string(),
        parameters,
        buffers: buffers.collect(),
        children: {
            let children = module.children.iter();
            let children = children.map(|(name, child)| module_shape(name, child, next));
            children.collect()
        },
    }
}

/// What tells which weights can be one: tied ones have the same name and shape.
type Likeness<'a> = (&'static str, &'a [u64]);

/// For each name and shape the first parameter that lives in its own memory.
fn first_of_each_shape<'a>(
    module: &'a Module,
    shape: &ModuleShape,
    homes: &mut HashMap<Likeness<'a>, u64>,
) {
    for (tensor, shape) in module.parameters.iter().zip(&shape.parameters) {
        if !tensor.shared {
            let likeness = (tensor.name, tensor.shape.as_slice());
            homes.entry(likeness).or_insert(shape.identity);
        }
    }
    for ((_, child), shape) in module.children.iter().zip(&shape.children) {
        first_of_each_shape(child, shape, homes);
    }
}

/// Makes each tied parameter the one whose memory it shares.
fn tie(module: &Module, shape: &mut ModuleShape, homes: &HashMap<Likeness<'_>, u64>) {
    for (tensor, shape) in module.parameters.iter().zip(&mut shape.parameters) {
        let home = homes.get(&(tensor.name, tensor.shape.as_slice()));
        if let Some(home) = home.filter(|_| tensor.shared) {
            shape.identity = *home;
        }
    }
    for ((_, child), shape) in module.children.iter().zip(&mut shape.children) {
        tie(child, shape, homes);
    }
}

/// Modules are read from dotted names; numbered blocks stay whole.
fn of_stored(stored: &Stored) -> Shape {
    let mut root = ModuleShape::default();
    let mut kept = IndexMap::new();
    let mut tensors: Vec<&StoredTensor> = stored.tensors.iter().collect();
    // Blocks in the order of their numbers, whatever the order of the files.
    tensors.sort_by_cached_key(|tensor| numbers_of(&tensor.name));
    for (index, tensor) in tensors.into_iter().enumerate() {
        let dtype = element_type(tensor.dtype);
        if tensor.role == Role::Quantized {
            kept.insert(tensor.name.clone(), dtype);
        }
        insert(&mut root, tensor, dtype, index as u64);
    }
    Shape {
        root,
        no_split: vec![BLOCK.to_owned()],
        kept,
    }
}

/// The place of a tensor among numbered blocks: what is in none comes first in its old order.
fn numbers_of(name: &str) -> Vec<u64> {
    let numbers = name.split('.').filter_map(|part| part.parse().ok());
    numbers.collect()
}

fn insert(root: &mut ModuleShape, tensor: &StoredTensor, dtype: ElementType, identity: u64) {
    let block = numbered_block(&tensor.name).unwrap_or_default();
    let mut module = root;
    let mut rest = tensor.name.as_str();
    let mut depth = 0;
    while let Some((part, below)) = rest.split_once('.') {
        // Scales may be named below the tensor that they scale.
        if part.is_empty() || module.parameters.iter().any(|sibling| sibling.name == part) {
            break;
        }
        depth += part.len();
        let is_block = depth == block.len();
        depth += 1;
        let position = module.children.iter().position(|child| child.name == part);
        let position = position.unwrap_or_else(|| {
            let class = if is_block { BLOCK } else { "Module" };
            module.children.push(ModuleShape::new(part, class));
            module.children.len() - 1
        });
        let Some(child) = module.children.get_mut(position) else {
            return;
        };
        module = child;
        rest = below;
    }
    let name = rest.replace('.', ":");
    let trainable = tensor.role == Role::Weight;
    let shape = TensorShape {
        trainable,
        ..TensorShape::parameter(name, tensor.elements(), dtype, identity)
    };
    match tensor.role {
        Role::Weight | Role::Quantized => module.parameters.push(shape),
        Role::Buffer => module.buffers.push(shape),
    }
}

/// The type of a file as device maps know it.
fn element_type(dtype: Dtype) -> ElementType {
    match dtype {
        Dtype::Bool => ElementType::Bool,
        Dtype::F4 => ElementType::Float4,
        Dtype::F6E2m3 | Dtype::F6E3m2 => ElementType::Float6,
        Dtype::U8 => ElementType::UInt8,
        Dtype::I8 => ElementType::Int8,
        Dtype::F8E5m2 => ElementType::Float8E5M2,
        Dtype::F8E4m3 => ElementType::Float8E4M3,
        Dtype::F8E8m0 => ElementType::Float8E8M0,
        Dtype::F8E4m3Fnuz => ElementType::Float8E4M3Fnuz,
        Dtype::F8E5m2Fnuz => ElementType::Float8E5M2Fnuz,
        Dtype::I16 => ElementType::Int16,
        Dtype::U16 => ElementType::UInt16,
        Dtype::F16 => ElementType::Float16,
        Dtype::Bf16 => ElementType::BFloat16,
        Dtype::I32 => ElementType::Int32,
        Dtype::U32 => ElementType::UInt32,
        Dtype::F32 => ElementType::Float32,
        Dtype::C64 => ElementType::Complex64,
        Dtype::F64 => ElementType::Float64,
        Dtype::I64 => ElementType::Int64,
        Dtype::U64 => ElementType::UInt64,
        // The enum may grow: of the types that there are, only this one is as large.
        _ => ElementType::Complex128,
    }
}
