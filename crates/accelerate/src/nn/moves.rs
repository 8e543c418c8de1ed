//! Moving a whole tree to another device or type, and giving it memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use accelerate_torch::meta;
use tch::{Device, Kind};

use super::parameter::is_real;
use super::walk::{self, TensorMut};
use super::{Buffer, Module, Parameter};
use crate::{Error, Result};

/// Moves everything, once it is known that there is something to move.
pub(super) fn to_device(root: &dyn Module, device: Device) -> Result<()> {
    for (_, module) in walk::modules(root) {
        if let Some(state) = module.state() {
            state.ask_to_move(module, device)?;
        }
    }
    require_values(root, "to_device")?;
    for (_, parameter) in walk::without_repeats(walk::parameters(root), Parameter::identity) {
        parameter.to_device(device)?;
    }
    for (_, buffer) in walk::without_repeats(walk::buffers(root), Buffer::identity) {
        buffer.to_device(device)?;
    }
    Ok(())
}

/// Converts all floating-point tensors.
pub(super) fn to_kind(root: &dyn Module, kind: Kind) -> Result<()> {
    if !is_real(kind) {
        return Err(Error::Argument {
            operation: "to_kind",
            expected: "a floating-point type".to_owned(),
            found: format!("`{kind:?}`"),
        });
    }
    for (_, parameter) in walk::without_repeats(walk::parameters(root), Parameter::identity) {
        if is_real(parameter.tensor().f_kind()?) {
            parameter.to_kind(kind)?;
        }
    }
    for (_, buffer) in walk::without_repeats(walk::buffers(root), Buffer::identity) {
        if is_real(buffer.tensor().f_kind()?) {
            buffer.to_kind(kind)?;
        }
    }
    Ok(())
}

/// Gives every tensor on the meta device memory, and moves the others.
///
/// libtorch cannot give a meta tensor memory in place, so all its names get a new one.
pub(super) fn materialize(root: &mut dyn Module, device: Device) -> Result<()> {
    materialize_where(root, device, &|_| true)
}

/// As [`materialize`], for the tensors whose names `is_wanted` accepts.
pub(crate) fn materialize_where(
    root: &mut dyn Module,
    device: Device,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    // With the old one, whose identity must not be given again meanwhile.
    let mut parameters: HashMap<usize, (Parameter, Parameter)> = HashMap::new();
    let mut buffers: HashMap<usize, (Buffer, Buffer)> = HashMap::new();
    walk::tensors_mut(root, &mut |name, tensor| {
        if !is_wanted(&name) {
            return Ok(());
        }
        match tensor {
            TensorMut::Parameter(place) if place.is_meta()? => {
                let new = match parameters.entry(place.identity()) {
                    Entry::Occupied(made) => made.into_mut(),
                    Entry::Vacant(free) => {
                        free.insert((place.clone(), place.materialized(device)?))
                    }
                };
                *place = new.1.clone();
            }
            TensorMut::Buffer(place) if place.is_meta()? => {
                let new = match buffers.entry(place.identity()) {
                    Entry::Occupied(made) => made.into_mut(),
                    Entry::Vacant(free) => {
                        free.insert((place.clone(), place.materialized(device)?))
                    }
                };
                *place = new.1.clone();
            }
            TensorMut::Parameter(place) => place.to_device(device)?,
            TensorMut::Buffer(place) => place.to_device(device)?,
        }
        Ok(())
    })
}

/// An error that names the tensors without values, if there are any.
pub(crate) fn require_values(root: &dyn Module, operation: &'static str) -> Result<()> {
    let mut tensors = Vec::new();
    for (name, parameter) in walk::parameters(root) {
        if parameter.is_meta()? {
            tensors.push(format!("`{name}`"));
        }
    }
    for (name, buffer) in walk::buffers(root) {
        if buffer.is_meta()? {
            tensors.push(format!("`{name}`"));
        }
    }
    refuse(operation, tensors)
}

/// As [`require_values`], for the tensors that a checkpoint holds.
pub(crate) fn require_state(root: &dyn Module, operation: &'static str) -> Result<()> {
    let mut tensors = Vec::new();
    for (name, tensor) in walk::state(root) {
        if meta::is_meta(tensor)? {
            tensors.push(format!("`{name}`"));
        }
    }
    refuse(operation, tensors)
}

fn refuse(operation: &'static str, tensors: Vec<String>) -> Result<()> {
    if tensors.is_empty() {
        return Ok(());
    }
    Err(Error::OnMeta { operation, tensors })
}
