//! Layers whose type is chosen at run time.

use std::fmt;

use tch::Tensor;

use super::{Forward, Member, MemberMut, Module, ModuleState};
use crate::Result;
use crate::tree::Tree;

/// Any module that makes an `O` from an `I`, in a box.
///
/// As a field it holds a layer whose type is known only at run time, or is to be
/// [replaced](Module::replace_submodule) by a layer of another type. In the tree it is the module
/// it holds: same class, same names, same hooks.
///
/// ```
/// use accelerate::nn::{Dropout, Factory, Forward, Layer, Linear, Module, ModuleState};
/// use accelerate::tch::Tensor;
///
/// #[derive(Module)]
/// struct Model {
///     head: Layer,
///     state: ModuleState,
/// }
///
/// let head = Linear::new(4, 2, &Factory::default())?;
/// let mut model = Model { head: Layer::new(head), state: ModuleState::default() };
/// assert_eq!(model.get_submodule("head")?.class_name(), "Linear");
/// model.replace_submodule("head", Box::new(Layer::new(Dropout::new(0.1)?)))?;
/// assert_eq!(model.get_submodule("head")?.class_name(), "Dropout");
/// # Ok::<(), accelerate::Error>(())
/// ```
pub struct Layer<I = Tensor, O = Tensor>(Box<dyn AnyForward<I, O>>);

impl<I: Tree + 'static, O: Tree + 'static> Layer<I, O> {
    /// Puts a module into the box.
    pub fn new(module: impl Forward<Input = I, Output = O>) -> Self {
        Self(Box::new(module))
    }

    /// The module in the box, if it is of the type `M`.
    pub fn downcast_ref<M: Module>(&self) -> Option<&M> {
        self.inner().downcast_ref()
    }
}

/// [`Forward`] as an object.
trait AnyForward<I, O>: Module {
    fn run(&self, input: I) -> Result<O>;
}

impl<M: Forward> AnyForward<M::Input, M::Output> for M {
    fn run(&self, input: M::Input) -> Result<M::Output> {
        // Not `call`: the hooks are those of the state, which the box shows as its own.
        self.forward(input)
    }
}

impl<I: Tree + 'static, O: Tree + 'static> Module for Layer<I, O> {
    fn class_name(&self) -> &'static str {
        self.0.class_name()
    }

    fn state(&self) -> Option<&ModuleState> {
        self.0.state()
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        self.0.members(visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        self.0.members_mut(visit);
    }

    fn extra_repr(&self) -> String {
        self.0.extra_repr()
    }

    fn hidden_sizes(&self) -> Vec<u64> {
        self.0.hidden_sizes()
    }

    fn inner(&self) -> &dyn Module {
        self.0.inner()
    }
}

impl<I: Tree + 'static, O: Tree + 'static> Forward for Layer<I, O> {
    type Input = I;
    type Output = O;

    fn forward(&self, input: I) -> Result<O> {
        self.0.run(input)
    }
}

impl<I: 'static, O: 'static> fmt::Debug for Layer<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layer").field(&self.0.class_name()).finish()
    }
}
