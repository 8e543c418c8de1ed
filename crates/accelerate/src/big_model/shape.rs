//! What a device map must know of a module.

use accelerate_plan::device_map::{ElementType, ModuleShape, TensorShape};
use tch::{Kind, Tensor};

use crate::Result;
use crate::nn::{Buffer, Member, Module, Parameter};

/// Names, classes, sizes and ties of a module, which may be on the meta device.
///
/// ```
/// use accelerate::big_model::module_shape;
/// use accelerate::nn::{Factory, Linear, init_empty_weights};
///
/// let layer = init_empty_weights(|| Linear::new(4, 2, &Factory::default()))?;
/// let shape = module_shape(&layer)?;
/// assert_eq!(shape.class, "Linear");
/// assert_eq!(shape.state_dict_names(), ["weight", "bias"]);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// None that is known.
pub fn module_shape(module: &dyn Module) -> Result<ModuleShape> {
    named_shape("", module)
}

fn named_shape(name: &str, module: &dyn Module) -> Result<ModuleShape> {
    let mut shape = ModuleShape::new(name, module.class_name());
    let mut result = Ok(());
    module.members(&mut |name, member| {
        let added = match member {
            Member::Parameter(parameter) => {
                parameter_shape(name, parameter).map(|one| shape.parameters.push(one))
            }
            Member::Buffer(buffer) => buffer_shape(name, buffer).map(|one| shape.buffers.push(one)),
            Member::Module(child) => named_shape(name, child).map(|one| shape.children.push(one)),
        };
        if result.is_ok() {
            result = added;
        }
    });
    result.map(|()| shape)
}

fn parameter_shape(name: &str, parameter: &Parameter) -> Result<TensorShape> {
    let identity = parameter.identity() as u64;
    let (elements, dtype) = (parameter.numel() as u64, element_type(parameter.tensor())?);
    Ok(TensorShape {
        trainable: parameter.requires_grad(),
        ..TensorShape::parameter(name, elements, dtype, identity)
    })
}

fn buffer_shape(name: &str, buffer: &Buffer) -> Result<TensorShape> {
    let tensor = buffer.tensor();
    let (elements, dtype) = (tensor.numel() as u64, element_type(tensor)?);
    Ok(TensorShape {
        persistent: buffer.is_persistent(),
        ..TensorShape::buffer(name, elements, dtype, buffer.identity() as u64)
    })
}

fn element_type(tensor: &Tensor) -> Result<ElementType> {
    Ok(element_type_of(tensor.f_kind()?))
}

/// What device maps call a type of libtorch.
pub fn element_type_of(kind: Kind) -> ElementType {
    match kind {
        Kind::Bool => ElementType::Bool,
        Kind::Uint8 | Kind::QUInt8 => ElementType::UInt8,
        Kind::Int8 | Kind::QInt8 => ElementType::Int8,
        Kind::Int16 => ElementType::Int16,
        Kind::Int | Kind::QInt32 => ElementType::Int32,
        Kind::Int64 => ElementType::Int64,
        Kind::Half => ElementType::Float16,
        Kind::BFloat16 => ElementType::BFloat16,
        Kind::Float => ElementType::Float32,
        Kind::Double => ElementType::Float64,
        Kind::ComplexHalf => ElementType::Complex32,
        Kind::ComplexFloat => ElementType::Complex64,
        Kind::ComplexDouble => ElementType::Complex128,
        Kind::Float8e5m2 => ElementType::Float8E5M2,
        Kind::Float8e4m3fn => ElementType::Float8E4M3,
        Kind::Float8e5m2fnuz => ElementType::Float8E5M2Fnuz,
        Kind::Float8e4m3fnuz => ElementType::Float8E4M3Fnuz,
    }
}

#[cfg(test)]
mod tests {
    use accelerate_plan::device_map::find_tied_parameters;

    use super::*;
    use crate::nn::{BatchNorm1d, Factory, Linear, ModuleState, init_empty_weights};

    #[derive(Debug, Module)]
    struct Net {
        linear1: Linear,
        batchnorm: BatchNorm1d,
        layers: Vec<Linear>,
        state: ModuleState,
    }

    fn net() -> Result<Net> {
        let factory = Factory::default();
        let linear1 = Linear::new(3, 4, &factory)?;
        Ok(Net {
            layers: vec![linear1.clone(), Linear::without_bias(4, 4, &factory)?],
            batchnorm: BatchNorm1d::new(4, &factory)?,
            linear1,
            state: ModuleState::default(),
        })
    }

    #[test]
    fn a_shape_says_what_the_tree_says() {
        for model in [net().unwrap(), init_empty_weights(net).unwrap()] {
            let shape = module_shape(&model).unwrap();
            let state: Vec<String> = model.state_dict().unwrap().into_keys().collect();
            assert_eq!(shape.state_dict_names(), state);
            assert_eq!(shape.class, "Net");
            let layers = shape.find("layers").unwrap();
            assert_eq!(layers.class, "ModuleList");
            let tied = find_tied_parameters(&shape);
            assert_eq!(
                tied,
                [
                    ["layers.0.bias", "linear1.bias"],
                    ["layers.0.weight", "linear1.weight"]
                ]
            );
            let counted = shape.named_buffers();
            let (_, counted) = counted.last().unwrap();
            assert_eq!((counted.elements, counted.dtype), (1, ElementType::Int64));
        }
    }
}
