//! Lists, maps and boxes of modules.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::{BatchNormSync, Forward, Member, MemberMut, Module, ModuleState};
use crate::Result;

macro_rules! module_list {
    ($(#[$doc:meta])* [$($generics:tt)*] $type:ty) => {
        $(#[$doc])*
        impl<M: Module, $($generics)*> Module for $type {
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
    };
}

module_list! {
    /// A list of modules is PyTorch's `ModuleList`: its members are named `0`, `1`, and so on.
    [] Vec<M>
}
module_list! {
    /// An array of modules is a list whose length the type knows.
    [const N: usize] [M; N]
}

macro_rules! module_map {
    ($(#[$doc:meta])* $type:ty) => {
        $(#[$doc])*
        impl<M: Module> Module for $type {
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
    };
}

module_map! {
    /// A map of modules is PyTorch's `ModuleDict`, with its members in the order they came in.
    IndexMap<String, M>
}
module_map! {
    /// A sorted map of modules is a `ModuleDict` with its members in the order of their names.
    BTreeMap<String, M>
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

    fn extra_repr(&self) -> String {
        (**self).extra_repr()
    }

    fn hidden_sizes(&self) -> Vec<u64> {
        (**self).hidden_sizes()
    }

    fn inner(&self) -> &dyn Module {
        (**self).inner()
    }

    fn batch_norm_sync(&self) -> Option<&BatchNormSync> {
        (**self).batch_norm_sync()
    }
}

impl<M: Forward> Forward for Box<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn forward(&self, input: M::Input) -> Result<M::Output> {
        (**self).forward(input)
    }
}
