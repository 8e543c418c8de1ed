//! Modules one after another.

use std::fmt;

use indexmap::IndexMap;
use tch::Tensor;

use super::{Forward, Layer, Member, MemberMut, Module, ModuleState};
use crate::tree::Tree;
use crate::{Error, Result};

/// Modules of which each gets what the one before it made.
///
/// They are named `0`, `1` and so on, or by names of their own. Without modules the input is the
/// output.
///
/// ```
/// use accelerate::nn::{Activation, ActivationFunction, Factory, Forward, Linear, Module, Sequential};
/// use accelerate::tch::{Device, Kind, Tensor};
///
/// let factory = Factory::default();
/// let model = Sequential::new()
///     .with(Linear::new(4, 8, &factory)?)
///     .with(Activation::new(ActivationFunction::Relu))
///     .with(Linear::new(8, 2, &factory)?);
/// let names: Vec<_> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
///
/// let batch = Tensor::f_zeros([3, 4], (Kind::Float, Device::Cpu))?;
/// assert_eq!(model.call(&batch)?.size(), [3, 2]);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `torch.nn.Sequential`, with numbers or an ordered dictionary.
pub struct Sequential<T = Tensor> {
    layers: IndexMap<String, Layer<T, T>>,
    state: ModuleState,
}

impl<T: Tree + 'static> Sequential<T> {
    /// No modules yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this module at the end, named by its place.
    #[must_use]
    pub fn with(mut self, module: impl Forward<Input = T, Output = T>) -> Self {
        self.push(Layer::new(module));
        self
    }

    /// With this module at the end, under a name of its own.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is empty, has a dot, or is there already.
    pub fn with_named(
        mut self,
        name: impl Into<String>,
        module: impl Forward<Input = T, Output = T>,
    ) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || name.contains('.') || self.layers.contains_key(&name) {
            return Err(Error::Argument {
                operation: "Sequential::with_named",
                expected: "a new name that is not empty and has no dot".to_owned(),
                found: format!("`{name}`"),
            });
        }
        self.layers.insert(name, Layer::new(module));
        Ok(self)
    }

    /// Adds a module at the end, named by its place.
    pub fn push(&mut self, layer: Layer<T, T>) {
        // Only a name that somebody gave can be in the way.
        let name = (self.layers.len()..)
            .map(|place| place.to_string())
            .find(|name| !self.layers.contains_key(name));
        self.layers.extend(name.map(|name| (name, layer)));
    }

    /// The module at this place.
    pub fn get(&self, place: usize) -> Option<&Layer<T, T>> {
        self.layers.get_index(place).map(|(_, layer)| layer)
    }

    /// The number of modules.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The modules in order.
    pub fn iter(&self) -> impl Iterator<Item = &Layer<T, T>> {
        self.layers.values()
    }
}

impl<T> Default for Sequential<T> {
    fn default() -> Self {
        Self {
            layers: IndexMap::new(),
            state: ModuleState::default(),
        }
    }
}

impl<T: 'static> fmt::Debug for Sequential<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sequential").field(&self.layers).finish()
    }
}

impl<T: Tree + 'static> FromIterator<Layer<T, T>> for Sequential<T> {
    fn from_iter<I: IntoIterator<Item = Layer<T, T>>>(layers: I) -> Self {
        let mut sequential = Self::new();
        for layer in layers {
            sequential.push(layer);
        }
        sequential
    }
}

impl<T: Tree + 'static> Module for Sequential<T> {
    fn class_name(&self) -> &'static str {
        "Sequential"
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        self.layers.members(visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        self.layers.members_mut(visit);
    }
}

impl<T: Tree + super::IntoInput<T> + 'static> Forward for Sequential<T> {
    type Input = T;
    type Output = T;

    fn forward(&self, input: T) -> Result<T> {
        self.iter()
            .try_fold(input, |hidden, layer| layer.call(hidden))
    }
}
