//! Calling a module.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use tch::Tensor;

use super::backward_hook::BackwardPass;
use super::hook::Hooks;
use super::{Hook, HookId, Module};
use crate::Result;
use crate::tree::Tree;

/// A module that computes an output from an input.
///
/// An author writes [`forward`](Self::forward). Whoever uses the module calls
/// [`call`](Self::call), so that its hooks run; a model that calls its layers through `forward`
/// would silently lose sharding, offloading and casting.
///
/// A module of several arguments takes a tuple or a struct with [`derive(Tree)`](macro@crate::tree::Tree).
pub trait Forward: Module {
    /// The argument: one tensor, or a tree of them.
    type Input: Tree;
    /// The result: one tensor, or a tree of them.
    type Output: Tree;

    /// Computes the output. Written by authors, run by [`call`](Self::call).
    ///
    /// # Errors
    /// What the operations inside report, most often a shape that does not fit.
    fn forward(&self, input: Self::Input) -> Result<Self::Output>;

    /// Runs the module on `input`, with its hooks around it.
    ///
    /// Accepts the input itself, or references in the place of its tensors: `layer.call(&x)`.
    ///
    /// # Errors
    /// What a hook or the forward pass reports.
    fn call(&self, input: impl IntoInput<Self::Input>) -> Result<Self::Output>
    where
        Self: Sized,
    {
        let input = input.into_input();
        match self.state().and_then(|state| state.hooks()) {
            None => self.forward(input),
            Some(hooks) => with_hooks(self, input, &hooks),
        }
    }
}

/// The forward pass with hooks around it, and those for the backward pass tied into the graph.
fn with_hooks<M: Forward>(module: &M, mut input: M::Input, hooks: &Hooks) -> Result<M::Output> {
    let mut pass = Pass {
        module,
        hooks: &hooks.forward,
        running: 0..0,
    };
    for (_, hook) in &hooks.forward {
        hook.before_forward(module, &mut input)?;
        pass.running.end += 1;
    }
    let backward = BackwardPass::begin(module.class_name(), &hooks.backward, &mut input)?;
    let checkpoint = hooks.forward.iter().find_map(|(_, hook)| {
        let checkpoint = hook.checkpoint();
        checkpoint.filter(|one| one.applies_to(module))
    });
    let mut output = match checkpoint {
        Some(checkpoint) => checkpoint.forward(module, input)?,
        None => module.forward(input)?,
    };
    for (_, hook) in &hooks.forward {
        pass.running.start += 1;
        hook.after_forward(module, &mut output)?;
    }
    if let Some(backward) = backward {
        backward.end(&mut output)?;
    }
    Ok(output)
}

/// The hooks that have begun and not ended; the rest of them is told when the pass breaks off.
struct Pass<'a> {
    module: &'a dyn Module,
    hooks: &'a [(HookId, Rc<dyn Hook>)],
    running: Range<usize>,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        for (_, hook) in self.hooks.get(self.running.clone()).into_iter().flatten() {
            hook.abandon_forward(self.module);
        }
    }
}

/// What can be given where a module takes a `T`: the value, or references to its tensors.
///
/// [`derive(Tree)`](macro@crate::tree::Tree) implements it for the type itself; a tree written by
/// hand adds the one line. A reference to a tensor becomes a second handle on it, no copy.
///
/// ```
/// use accelerate::nn::IntoInput;
/// use accelerate::tch::Tensor;
///
/// let (hidden, mask) = (Tensor::from(1.0), Tensor::from(true));
/// let input: (Tensor, Option<Tensor>) = (&hidden, Some(&mask)).into_input();
/// assert_eq!(input.0, hidden);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given to a module that takes `{T}`",
    note = "`derive(Tree)` makes a type its own argument; tensors may be given by reference"
)]
pub trait IntoInput<T> {
    /// The input of the module.
    fn into_input(self) -> T;
}

impl IntoInput<Tensor> for &Tensor {
    fn into_input(self) -> Tensor {
        self.shallow_clone()
    }
}

macro_rules! own_argument {
    ($($type:ty),* $(,)?) => {$(
        impl IntoInput<$type> for $type {
            fn into_input(self) -> $type {
                self
            }
        }
    )*};
}

own_argument!(
    Tensor,
    (),
    bool,
    u8,
    u32,
    u64,
    usize,
    i32,
    i64,
    f32,
    f64,
    String,
    &'static str
);

impl<T, I: IntoInput<T>> IntoInput<Option<T>> for Option<I> {
    fn into_input(self) -> Option<T> {
        self.map(I::into_input)
    }
}

impl<T, I: IntoInput<T>> IntoInput<Vec<T>> for Vec<I> {
    fn into_input(self) -> Vec<T> {
        self.into_iter().map(I::into_input).collect()
    }
}

impl<T, I: IntoInput<T>, const N: usize> IntoInput<[T; N]> for [I; N] {
    fn into_input(self) -> [T; N] {
        self.map(I::into_input)
    }
}

impl<T, I: IntoInput<T>> IntoInput<Box<T>> for Box<I> {
    fn into_input(self) -> Box<T> {
        Box::new((*self).into_input())
    }
}

impl<K: Ord, T, I: IntoInput<T>> IntoInput<BTreeMap<K, T>> for BTreeMap<K, I> {
    fn into_input(self) -> BTreeMap<K, T> {
        self.into_iter()
            .map(|(key, item)| (key, item.into_input()))
            .collect()
    }
}

macro_rules! tuple_argument {
    ($($to:ident $from:ident $index:tt),+) => {
        impl<$($to, $from: IntoInput<$to>),+> IntoInput<($($to,)+)> for ($($from,)+) {
            fn into_input(self) -> ($($to,)+) {
                ($(self.$index.into_input(),)+)
            }
        }
    };
}

tuple_argument!(A I 0);
tuple_argument!(A I 0, B J 1);
tuple_argument!(A I 0, B J 1, C K 2);
tuple_argument!(A I 0, B J 1, C K 2, D L 3);
tuple_argument!(A I 0, B J 1, C K 2, D L 3, E M 4);
tuple_argument!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5);
