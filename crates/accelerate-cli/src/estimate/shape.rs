//! A model as device maps know it, from its configuration or from the names in its files.

use std::collections::{HashMap, HashSet};

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
    let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    // Blocks in the order of their numbers, whatever the order of the files.
    tensors.sort_by_cached_key(|tensor| numbers_of(&tensor.name));
    for (index, tensor) in tensors.into_iter().enumerate() {
        let dtype = element_type(tensor.dtype);
        let place = Place::of(&tensor.name, &names);
        if tensor.role == Role::Quantized {
            kept.insert(place.name(), dtype);
        }
        insert(&mut root, tensor, &place, dtype, index as u64);
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

/// Where a tensor is in the tree that names make.
struct Place<'a> {
    modules: Vec<&'a str>,
    /// How many of the modules lead to the numbered block, if the tensor is in one.
    block: Option<usize>,
    tensor: String,
}

impl<'a> Place<'a> {
    fn of(name: &'a str, tensors: &HashSet<&str>) -> Self {
        let block = numbered_block(name).map(|block| block.split('.').count());
        let mut modules = Vec::new();
        let mut rest = name;
        let mut end = 0;
        while let Some((part, below)) = rest.split_once('.') {
            end += part.len();
            // Scales may be named below the tensor that they scale.
            let is_tensor = name.get(..end).is_some_and(|above| tensors.contains(above));
            if part.is_empty() || is_tensor {
                break;
            }
            end += 1;
            modules.push(part);
            rest = below;
        }
        Self {
            modules,
            block,
            tensor: rest.replace('.', ":"),
        }
    }

    fn name(&self) -> String {
        let parts = self.modules.iter().copied().chain([self.tensor.as_str()]);
        parts.collect::<Vec<_>>().join(".")
    }
}

fn insert(
    root: &mut ModuleShape,
    tensor: &StoredTensor,
    place: &Place<'_>,
    dtype: ElementType,
    identity: u64,
) {
    let mut module = root;
    for (depth, part) in place.modules.iter().enumerate() {
        let class = match place.block == Some(depth + 1) {
            true => BLOCK,
            false => "Module",
        };
        module = child(module, part, class);
    }
    let shape = TensorShape {
        trainable: tensor.role == Role::Weight,
        ..TensorShape::parameter(place.tensor.as_str(), tensor.elements(), dtype, identity)
    };
    match tensor.role {
        Role::Weight | Role::Quantized => module.parameters.push(shape),
        Role::Buffer => module.buffers.push(shape),
    }
}

/// The child of this name, which is made if it is not there yet.
fn child<'a>(module: &'a mut ModuleShape, name: &str, class: &str) -> &'a mut ModuleShape {
    let mut children = module.children.iter();
    let index = match children.position(|child| child.name == name) {
        Some(index) => index,
        None => {
            module.children.push(ModuleShape::new(name, class));
            module.children.len() - 1
        }
    };
    &mut module.children[index]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::module::{Bias, embedding, linear};

    #[test]
    fn tied_weights_are_one() {
        let words = || linear(4, 10, Bias::No).tied("weight", true);
        let model = Module::new("Model").child("wte", embedding(10, 4));
        let root = Module::new("")
            .child("model", model)
            .child("lm_head", words());
        let skeleton = Skeleton {
            root,
            no_split: Vec::new(),
        };
        let shape = of_skeleton(&skeleton);
        let tied = accelerate_plan::device_map::find_tied_parameters(&shape.root);
        assert_eq!(tied, [["lm_head.weight", "model.wte.weight"]]);
    }

    #[test]
    fn scales_below_a_tensor_stay_beside_it() {
        let tensor = |name: &str, dtype, role| StoredTensor {
            name: name.to_owned(),
            dtype,
            shape: vec![4],
            bytes: 4,
            role,
        };
        let stored = Stored {
            files: 1,
            tensors: vec![
                tensor("h.10.q.weight.scale", Dtype::F32, Role::Quantized),
                tensor("h.10.q.weight", Dtype::I8, Role::Quantized),
                tensor("h.2.q.weight", Dtype::Bf16, Role::Weight),
                tensor("mask", Dtype::Bool, Role::Buffer),
            ],
        };
        let shape = of_stored(&stored);
        shape.root.check_names().unwrap();
        assert_eq!(shape.blocks(), ["h.2", "h.10"]);
        let names: Vec<_> = shape.kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["h.10.q.weight:scale", "h.10.q.weight"]);
        assert_eq!(shape.root.named_buffers()[0].0, "mask");
    }
}
