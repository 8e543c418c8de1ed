//! From a file into a module in shards: each rank reads what it keeps.

use std::collections::HashMap;

use accelerate_formats::Weights;
use accelerate_torch::{meta, storage};
use tch::Tensor;

use super::compare::{Incoming as _, compare};
use super::load::{LoadOptions, slices};
use super::report::LoadReport;
use crate::nn::{FlatMembers, Member, MemberMut, Module, ModuleState, Parameter};
use crate::parallel::{Kept, ShardedModel};
use crate::{Error, Result};

/// As [`load_weights`](super::load_weights), of a model of which each rank keeps a part.
pub(crate) fn load_shards(
    module: &dyn Module,
    sharded: &ShardedModel,
    weights: &Weights,
    options: &LoadOptions<'_>,
) -> Result<LoadReport> {
    let view = WholeShapes::of(module, sharded.kept())?;
    let slices = slices(weights);
    let (report, copies) = compare(&view, &slices, options)?;
    if !options.accepts(&report) {
        return Err(Error::WeightsDoNotFit {
            path: weights.path().to_owned(),
            class: module.class_name(),
            report: Box::new(report),
        });
    }
    tch::no_grad(|| {
        copies
            .iter()
            .try_for_each(|(slice, target)| match view.kept(target) {
                Some(kept) => slice.copy_range_to(&kept.range, &kept.values),
                None => slice.copy_to(target),
            })
    })?;
    sharded.note_values()?;
    Ok(report)
}

/// A module with parameters of the shapes that they have as a whole, and without values where these
/// are in shards.
struct WholeShapes {
    class: &'static str,
    members: FlatMembers,
    /// By the identity of what stands for the parameter.
    shards: HashMap<usize, Kept>,
}

impl WholeShapes {
    fn of(module: &dyn Module, mut kept: HashMap<usize, Kept>) -> Result<Self> {
        let mut members = FlatMembers::of(module);
        let mut shards = HashMap::new();
        let mut stands_for: HashMap<usize, Parameter> = HashMap::new();
        for (_, place) in &mut members.parameters {
            let identity = place.identity();
            if let Some(known) = stands_for.get(&identity) {
                *place = known.clone();
            } else if let Some(own) = kept.remove(&identity) {
                let shape: Vec<i64> = own.shape.iter().map(|&size| size as i64).collect();
                let whole = Parameter::from_tensor(meta::empty(&shape, own.values.f_kind()?)?);
                shards.insert(whole.identity(), own);
                stands_for.insert(identity, whole.clone());
                *place = whole;
            }
        }
        Ok(Self {
            class: module.class_name(),
            members,
            shards,
        })
    }

    fn kept(&self, target: &Tensor) -> Option<&Kept> {
        self.shards.get(&storage::identity(target))
    }
}

impl Module for WholeShapes {
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
