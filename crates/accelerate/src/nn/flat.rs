//! Parameters and buffers without a tree around them.

use super::{Buffer, Member, MemberMut, Module, Parameter, walk};

/// Parameters and buffers under their dotted names: the members of a module without children.
#[derive(Debug)]
pub(crate) struct FlatMembers {
    pub(crate) parameters: Vec<(String, Parameter)>,
    pub(crate) buffers: Vec<(String, Buffer)>,
}

impl FlatMembers {
    /// Handles on everything a module holds at any depth, a tied tensor under each of its names.
    pub(crate) fn of(module: &dyn Module) -> Self {
        let parameters = walk::parameters(module).into_iter();
        let buffers = walk::buffers(module).into_iter();
        Self {
            parameters: parameters.map(|(name, one)| (name, one.clone())).collect(),
            buffers: buffers.map(|(name, one)| (name, one.clone())).collect(),
        }
    }

    /// [`Module::members`] of what holds them.
    pub(crate) fn visit<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        for (name, parameter) in &self.parameters {
            visit(name, Member::Parameter(parameter));
        }
        for (name, buffer) in &self.buffers {
            visit(name, Member::Buffer(buffer));
        }
    }

    /// [`Module::members_mut`] of what holds them.
    pub(crate) fn visit_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        for (name, parameter) in &mut self.parameters {
            visit(name, MemberMut::Parameter(parameter));
        }
        for (name, buffer) in &mut self.buffers {
            visit(name, MemberMut::Buffer(buffer));
        }
    }
}
