//! The parts of a model that wait for a place.

use super::{ModuleShape, TensorShape, shape::joined};

/// A part of a model that is placed in one piece or taken apart.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    /// Its dotted name.
    pub(super) name: String,
    /// The module; none for a parameter or a buffer.
    pub(super) module: Option<&'a ModuleShape>,
}

impl<'a> Item<'a> {
    /// The parts of a module: parameters that it holds itself, its children, its own buffers.
    ///
    /// # Source
    /// Differs: buffers of a module that is taken apart are parts as well. The original does so for
    /// the root only, and leaves those of other modules without a place.
    pub(super) fn parts_of(name: &str, module: &'a ModuleShape) -> Vec<Self> {
        let tensor = |tensor: &TensorShape| Self {
            name: joined(name, &tensor.name),
            module: None,
        };
        let child = |child: &'a ModuleShape| Self {
            name: joined(name, &child.name),
            module: Some(child),
        };
        let parameters = module.parameters.iter().map(tensor);
        let children = module.children.iter().map(child);
        let buffers = module.buffers.iter().map(tensor);
        parameters.chain(children).chain(buffers).collect()
    }

    /// The parts of this one, if it has modules below it and its class may be split.
    pub(super) fn split(&self, no_split: &[String]) -> Option<Vec<Self>> {
        let module = self.module?;
        if module.children.is_empty() || no_split.contains(&module.class) {
            return None;
        }
        Some(Self::parts_of(&self.name, module))
    }
}
