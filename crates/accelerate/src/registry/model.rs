//! A prepared model without its type.

use crate::accumulation::ModelGradients;
use crate::nn::{FlatMembers, Member, MemberMut, Module, ModuleState};

/// Handles on the tensors of a prepared model and on its gradients.
#[derive(Debug)]
pub(crate) struct ModelHandle {
    class: &'static str,
    gradients: ModelGradients,
    members: FlatMembers,
}

impl ModelHandle {
    pub(crate) fn new(module: &dyn Module, gradients: ModelGradients) -> Self {
        Self {
            class: module.class_name(),
            gradients,
            members: FlatMembers::of(module),
        }
    }

    pub(crate) fn gradients(&self) -> &ModelGradients {
        &self.gradients
    }
}

/// A flat view: everything is a direct member, under its dotted name.
impl Module for ModelHandle {
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
