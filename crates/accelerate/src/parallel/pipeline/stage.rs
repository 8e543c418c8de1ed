//! A model of which only one stage has memory, and its weights from a file.

use std::collections::{HashMap, HashSet};

use accelerate_formats::Weights;
use accelerate_torch::meta;
use tch::Device;

use crate::checkpoint::{LoadOptions, LoadReport, load_weights};
use crate::nn::{
    self, Buffer, FlatMembers, Member, MemberMut, Module, ModuleState, Parameter, TensorMut,
};
use crate::{Error, Result};

/// Puts what the stage computes with on `device`, and takes the memory of everything else.
///
/// What has no memory yet stays so: it is [loaded](load) later.
pub(super) fn keep_only(
    model: &mut dyn Module,
    is_own: &dyn Fn(&str) -> bool,
    device: Device,
) -> Result<()> {
    nn::tensors_mut(model, &mut |name, tensor| match tensor {
        TensorMut::Parameter(place) if !place.is_meta()? => match is_own(&name) {
            true => place.to_device(device),
            false => {
                *place = hollow_parameter(place)?;
                Ok(())
            }
        },
        TensorMut::Buffer(place) if !place.is_meta()? => match is_own(&name) {
            true => place.to_device(device),
            false => {
                let empty = meta::like(place.tensor())?;
                *place = match place.is_persistent() {
                    true => Buffer::new(empty),
                    false => Buffer::non_persistent(empty),
                };
                Ok(())
            }
        },
        TensorMut::Buffer(place) if is_own(&name) && !place.is_persistent() => Err(Error::OnMeta {
            operation: "pipeline",
            tensors: vec![format!("`{name}`, which no file holds,")],
        }),
        _ => Ok(()),
    })
}

fn hollow_parameter(place: &Parameter) -> Result<Parameter> {
    let empty = Parameter::from_tensor(meta::like(place.tensor())?);
    empty.set_requires_grad(place.requires_grad())?;
    Ok(empty)
}

/// The tensors of one stage under their names in the whole model, as a module without a tree.
struct StageTensors {
    class: &'static str,
    members: FlatMembers,
}

impl Module for StageTensors {
    fn class_name(&self) -> &'static str {
        self.class
    }

    fn state(&self) -> Option<&ModuleState> {
        None
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        self.members.visit(visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        self.members.visit_mut(visit);
    }
}

/// Gives the stage memory and reads its tensors from a file; others are neither read nor missed.
///
/// `rename` gives the name in the model of a tensor in the file. A tensor that is tied to one of
/// another stage is read under either name.
pub(super) fn load(
    model: &mut dyn Module,
    is_own: &dyn Fn(&str) -> bool,
    ties: &[Vec<String>],
    weights: &Weights,
    rename: &dyn Fn(&str) -> Option<String>,
    device: Device,
) -> Result<LoadReport> {
    nn::materialize_where(model, device, is_own)?;
    let mut members = FlatMembers::of(model);
    members.parameters.retain(|(name, _)| is_own(name));
    members.buffers.retain(|(name, _)| is_own(name));
    let stage = StageTensors {
        class: model.class_name(),
        members,
    };
    let stored: HashSet<String> = weights.names().filter_map(rename).collect();
    let second_names = second_names(ties, is_own, &stored);
    let own_name = |name: &str| {
        let name = rename(name)?;
        if is_own(&name) {
            return Some(name);
        }
        second_names.get(&name).cloned()
    };
    let options = LoadOptions::strict().with_rename(&own_name);
    load_weights(&stage, weights, &options)
}

/// For each tensor of another stage that the file has instead of a tied one of this stage: the name
/// of the latter.
fn second_names(
    ties: &[Vec<String>],
    is_own: &dyn Fn(&str) -> bool,
    stored: &HashSet<String>,
) -> HashMap<String, String> {
    let pairs = ties.iter().filter_map(|group| {
        let own = group.iter().find(|name| is_own(name))?;
        let has_own = group
            .iter()
            .any(|name| is_own(name) && stored.contains(name));
        let other = group.iter().find(|name| stored.contains(*name))?;
        (!has_own).then(|| (other.clone(), own.clone()))
    });
    pairs.collect()
}
