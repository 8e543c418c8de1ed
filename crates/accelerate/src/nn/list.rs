//! Lists, maps and boxes of modules.

use std::collections::BTreeMap;

use super::{BatchNormSync, Member, MemberMut, Module, ModuleState};

/// A list of modules is PyTorch's `ModuleList`: its members are named `0`, `1`, and so on.
impl<M: Module> Module for Vec<M> {
    fn class_name(&self) -> &'static str {
        "ModuleList"
    }

    fn state(&self) -> Option<&ModuleState> {
        None
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        for (index, module) in self.iter().enumerate() {
            visit(&index.to_string(), Member::Module(module));
        }
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        for (index, module) in self.iter_mut().enumerate() {
            visit(&index.to_string(), MemberMut::Module(module));
        }
    }
}

/// A map of modules is PyTorch's `ModuleDict`, with its members sorted by name.
impl<M: Module> Module for BTreeMap<String, M> {
    fn class_name(&self) -> &'static str {
        "ModuleDict"
    }

    fn state(&self) -> Option<&ModuleState> {
        None
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        for (name, module) in self {
            visit(name, Member::Module(module));
        }
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        for (name, module) in self {
            visit(name, MemberMut::Module(module));
        }
    }
}

/// A boxed module is the module in the box.
impl<M: Module + ?Sized> Module for Box<M> {
    fn class_name(&self) -> &'static str {
        (**self).class_name()
    }

    fn state(&self) -> Option<&ModuleState> {
        (**self).state()
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        (**self).members(visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        (**self).members_mut(visit);
    }

    fn batch_norm_sync(&self) -> Option<&BatchNormSync> {
        (**self).batch_norm_sync()
    }
}
