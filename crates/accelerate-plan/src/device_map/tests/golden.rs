//! What the original answered.

use indexmap::IndexMap;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    model: Module,
    tied: Vec<Vec<String>>,
    mode: String,
    max_memory: MaxMemory,
    no_split: Vec<String>,
    dtype: Option<String>,
    offload_buffers: bool,
    balanced: Option<MaxMemory>,
    device_map: DeviceMap,
    total: u64,
    sizes: IndexMap<String, u64>,
}

#[derive(Deserialize)]
struct Module {
    name: String,
    cls: String,
    params: Vec<Tensor>,
    buffers: Vec<Tensor>,
    children: Vec<Module>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    dtype: String,
}

impl Module {
    fn shape(&self) -> ModuleShape {
        let tensors = |tensors: &[Tensor], trainable| {
            let shapes = tensors.iter().map(|tensor| TensorShape {
                trainable,
                ..TensorShape::parameter(
                    &tensor.name,
                    tensor.shape.iter().product(),
                    tensor.dtype.parse().unwrap(),
                    0,
                )
            });
            shapes.collect()
        };
        ModuleShape {
            name: self.name.clone(),
            class: self.cls.clone(),
            parameters: tensors(&self.params, true),
            buffers: tensors(&self.buffers, false),
            children: self.children.iter().map(Self::shape).collect(),
        }
    }
}

impl Case {
    fn model(&self) -> ModuleShape {
        let mut model = numbered(self.model.shape());
        for group in &self.tied {
            let [first, others @ ..] = group.as_slice() else {
                continue;
            };
            for other in others {
                model = tied(model, first, other);
            }
        }
        model
    }

    fn options(&self) -> InferOptions {
        InferOptions {
            no_split_module_classes: self.no_split.clone(),
            dtype: self.dtype.as_ref().map(|dtype| dtype.parse().unwrap()),
            offload_buffers: self.offload_buffers,
            ..InferOptions::with_limits(self.max_memory.clone())
        }
    }
}

#[test]
fn sizes_limits_and_maps_are_those_of_the_original() {
    let cases = include_str!("../../../../../tests/golden/device_maps.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    assert!(cases.len() > 80);
    for (index, case) in cases.iter().enumerate() {
        let model = case.model();
        let mut options = case.options();
        assert_eq!(find_tied_parameters(&model), case.tied, "case {index}");
        let sizes = compute_module_sizes(&model, options.dtype, &options.special_dtypes);
        assert_eq!(sizes.total().bytes(), case.total, "case {index}");
        for ((name, size), (expected, bytes)) in sizes.iter().zip(&case.sizes) {
            assert_eq!(
                (name, size.bytes()),
                (expected.as_str(), *bytes),
                "case {index}"
            );
        }
        if let Some(expected) = &case.balanced {
            let balance = Balance {
                low_zero: case.mode == "balanced_low_0",
                detected: false,
            };
            options.max_memory = get_balanced_memory(&model, &options, balance);
            assert_eq!(&options.max_memory, expected, "case {index}");
        }
        let inferred = infer_auto_device_map(&model, &options).unwrap();
        assert_eq!(
            sorted(&inferred.device_map),
            sorted(&case.device_map),
            "case {index}:\n{}",
            inferred.explanation
        );
    }
}
