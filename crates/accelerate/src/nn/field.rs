//! What a field of a module can be.

use indexmap::IndexMap;

use super::{Buffer, Member, MemberMut, Module, Parameter};

/// A type that a field of a module can have.
///
/// It is implemented for [`Parameter`], [`Buffer`], every [`Module`](trait@Module) (lists and maps of
/// modules are modules too), lists and maps of parameters, lists of buffers, and options of all of these: an absent member
/// is not listed. The derive asks it of every field that is neither the `ModuleState` nor skipped,
/// so a forgotten parameter cannot slip through:
///
/// ```compile_fail,E0277
/// use accelerate::nn::{Linear, Module, ModuleState};
///
/// #[derive(Module)]
/// struct Scaled {
///     linear: Linear,
///     // `f64` cannot be a field of a module
///     scale: f64,
///     state: ModuleState,
/// }
/// ```
///
/// Plain data is marked as such:
///
/// ```
/// use accelerate::nn::{Linear, Module, ModuleState};
///
/// #[derive(Module)]
/// struct Scaled {
///     linear: Linear,
///     #[module(skip)]
///     scale: f64,
///     state: ModuleState,
/// }
/// ```
///
/// A raw tensor has to say whether it is trained:
///
/// ```compile_fail,E0277
/// use accelerate::nn::{Module, ModuleState};
///
/// #[derive(Module)]
/// struct Table {
///     weight: accelerate::tch::Tensor,
///     state: ModuleState,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a module",
    label = "neither parameter, buffer, module, nor a list or option of these",
    note = "mark plain data with `#[module(skip)]`",
    note = "wrap a tensor that is trained in `nn::Parameter` and any other tensor in `nn::Buffer`"
)]
pub trait ModuleField {
    /// Calls `visit` with every member this field stands for; `name` is the field's.
    fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>));

    /// As [`visit`](Self::visit), with the right to change the members.
    fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>));
}

impl ModuleField for Parameter {
    fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit(name, Member::Parameter(self));
    }

    fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit(name, MemberMut::Parameter(self));
    }
}

impl ModuleField for Buffer {
    fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit(name, Member::Buffer(self));
    }

    fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit(name, MemberMut::Buffer(self));
    }
}

impl<M: Module> ModuleField for M {
    fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit(name, Member::Module(self));
    }

    fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit(name, MemberMut::Module(self));
    }
}

impl<F: ModuleField> ModuleField for Option<F> {
    fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>)) {
        if let Some(field) = self {
            field.visit(name, visit);
        }
    }

    fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        if let Some(field) = self {
            field.visit_mut(name, visit);
        }
    }
}

macro_rules! tensor_list {
    ($($variant:ident)*) => {$(
        /// As PyTorch's lists of these: members are named by the field and their place.
        impl ModuleField for Vec<$variant> {
            fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>)) {
                for (index, item) in self.iter().enumerate() {
                    visit(&format!("{name}.{index}"), Member::$variant(item));
                }
            }

            fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
                for (index, item) in self.iter_mut().enumerate() {
                    visit(&format!("{name}.{index}"), MemberMut::$variant(item));
                }
            }
        }
    )*};
}

tensor_list!(Parameter Buffer);

/// As PyTorch's `ParameterDict`: members are named by the field and their key.
impl ModuleField for IndexMap<String, Parameter> {
    fn visit<'m>(&'m self, name: &str, visit: &mut dyn FnMut(&str, Member<'m>)) {
        for (key, parameter) in self {
            visit(&format!("{name}.{key}"), Member::Parameter(parameter));
        }
    }

    fn visit_mut<'m>(&'m mut self, name: &str, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        for (key, parameter) in self {
            visit(&format!("{name}.{key}"), MemberMut::Parameter(parameter));
        }
    }
}
