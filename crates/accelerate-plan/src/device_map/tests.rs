//! Models without tensors for the tests of device maps.

mod golden;
mod mistakes;
mod properties;
mod tables;

use super::*;

/// A layer with a weight and a bias.
fn linear(name: &str, inputs: u64, outputs: u64) -> ModuleShape {
    ModuleShape {
        parameters: vec![
            TensorShape::parameter("weight", inputs * outputs, ElementType::Float32, 0),
            TensorShape::parameter("bias", outputs, ElementType::Float32, 0),
        ],
        ..ModuleShape::new(name, "Linear")
    }
}

fn batch_norm(name: &str, size: u64) -> ModuleShape {
    let float = ElementType::Float32;
    ModuleShape {
        parameters: vec![
            TensorShape::parameter("weight", size, float, 0),
            TensorShape::parameter("bias", size, float, 0),
        ],
        buffers: vec![
            TensorShape::buffer("running_mean", size, float, 0),
            TensorShape::buffer("running_var", size, float, 0),
            TensorShape::buffer("num_batches_tracked", 1, ElementType::Int64, 0),
        ],
        ..ModuleShape::new(name, "BatchNorm1d")
    }
}

fn module(name: &str, class: &str, children: Vec<ModuleShape>) -> ModuleShape {
    ModuleShape {
        children,
        ..ModuleShape::new(name, class)
    }
}

/// The small model of 236 bytes: 64, 72 and 100.
fn small(name: &str) -> ModuleShape {
    let layers = vec![
        linear("linear1", 3, 4),
        batch_norm("batchnorm", 4),
        linear("linear2", 4, 5),
    ];
    module(name, "ModelForTest", layers)
}

/// Modules one after another, each called by its index.
fn sequential(modules: Vec<ModuleShape>) -> ModuleShape {
    let named = modules.into_iter().enumerate().map(|(index, module)| {
        let name = index.to_string();
        ModuleShape { name, ..module }
    });
    module("", "Sequential", named.collect())
}

/// Makes every tensor a tensor of its own.
fn numbered(mut model: ModuleShape) -> ModuleShape {
    fn number(module: &mut ModuleShape, next: &mut u64) {
        for tensor in module.parameters.iter_mut().chain(&mut module.buffers) {
            *next += 1;
            tensor.identity = *next;
        }
        for child in &mut module.children {
            number(child, next);
        }
    }
    number(&mut model, &mut 0);
    model
}

fn parameter<'a>(model: &'a mut ModuleShape, name: &str) -> &'a mut TensorShape {
    let mut parts: Vec<_> = name.split('.').collect();
    let tensor = parts.pop().unwrap();
    let mut module = model;
    for part in parts {
        let mut children = module.children.iter_mut();
        module = children.find(|child| child.name == part).unwrap();
    }
    let mut parameters = module.parameters.iter_mut();
    parameters
        .find(|parameter| parameter.name == tensor)
        .unwrap()
}

/// Puts the parameter `from` in the place of the parameter `to`.
fn tied(mut model: ModuleShape, from: &str, to: &str) -> ModuleShape {
    let source = parameter(&mut model, from).clone();
    let target = parameter(&mut model, to);
    *target = TensorShape {
        name: target.name.clone(),
        ..source
    };
    model
}

fn limits(text: &str) -> MaxMemory {
    text.parse().unwrap()
}

fn options(text: &str) -> InferOptions {
    InferOptions::with_limits(limits(text))
}

fn no_split(text: &str, class: &str) -> InferOptions {
    InferOptions {
        no_split_module_classes: vec![class.to_owned()],
        ..options(text)
    }
}

/// The entries of a map, in order of their names.
fn sorted(map: &DeviceMap) -> Vec<(String, Placement)> {
    let mut entries: Vec<_> = map
        .iter()
        .map(|(name, place)| (name.to_owned(), place))
        .collect();
    entries.sort_unstable();
    entries
}

/// A map as text: `linear1:0 batchnorm:cpu`.
fn shown(map: &DeviceMap) -> String {
    let entries = map.iter().map(|(name, place)| format!("{name}:{place}"));
    entries.collect::<Vec<_>>().join(" ")
}

fn inferred(model: &ModuleShape, options: &InferOptions) -> String {
    shown(&infer_auto_device_map(model, options).unwrap().device_map)
}
