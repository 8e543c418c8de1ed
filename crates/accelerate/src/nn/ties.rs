//! Parameters under several names.

use std::collections::HashMap;

use super::find::no_such;
use super::walk::{self, TensorMut};
use super::{Module, Parameter};
use crate::{Error, Result};

/// The names of each parameter that has more than one.
pub(super) fn tied_parameters(root: &dyn Module) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut place_of = HashMap::new();
    for (name, parameter) in walk::parameters(root) {
        let place = *place_of
            .entry(parameter.identity())
            .or_insert_with(|| groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(name),
            None => groups.push(vec![name]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Gives all names of a group the first of its parameters that has values.
pub(super) fn retie(root: &mut dyn Module, groups: &[Vec<String>]) -> Result<()> {
    let shared = shared(root, groups)?;
    walk::tensors_mut(root, &mut |name, tensor| {
        if let (TensorMut::Parameter(place), Some(parameter)) = (tensor, shared.get(&name)) {
            *place = parameter.clone();
        }
        Ok(())
    })
}

/// The parameter that each name is to have; nothing for groups without values.
fn shared(root: &dyn Module, groups: &[Vec<String>]) -> Result<HashMap<String, Parameter>> {
    let by_name: HashMap<String, &Parameter> = walk::parameters(root).into_iter().collect();
    let mut shared = HashMap::new();
    for group in groups {
        let mut kept: Option<&Parameter> = None;
        for name in group {
            let parameter = by_name.get(name).copied().ok_or_else(|| {
                let known = walk::parameters(root).into_iter().map(|(name, _)| name);
                no_such(root, "parameter", name, known)
            })?;
            if kept.is_none() && !parameter.is_meta()? {
                kept = Some(parameter);
            }
        }
        let Some(kept) = kept else { continue };
        for name in group {
            let shape = by_name.get(name).map(|parameter| parameter.shape());
            if shape.as_ref().is_some_and(|shape| *shape != kept.shape()) {
                return Err(Error::Argument {
                    operation: "retie",
                    expected: format!("parameters of the shape {:?} in {group:?}", kept.shape()),
                    found: format!("{:?} at `{name}`", shape.unwrap_or_default()),
                });
            }
            shared.insert(name.clone(), kept.clone());
        }
    }
    Ok(shared)
}
