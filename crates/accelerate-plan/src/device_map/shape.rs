//! What a device map must know of a model: names, classes and sizes, without a tensor.

use std::collections::HashSet;

use super::{DeviceMapError, ElementType, MemorySize};

/// A parameter or a buffer without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorShape {
    /// Its name in the module that holds it, without dots.
    pub name: String,
    /// How many elements it has.
    pub elements: u64,
    /// Their type.
    pub dtype: ElementType,
    /// Whether it belongs to the state of the model; parameters always do.
    pub persistent: bool,
    /// Which tensor it is: two names with one number are one tensor (tied weights).
    pub identity: u64,
    /// Whether it is trained; buffers never are.
    pub trainable: bool,
}

impl TensorShape {
    /// A trained parameter.
    pub fn parameter(
        name: impl Into<String>,
        elements: u64,
        dtype: ElementType,
        identity: u64,
    ) -> Self {
        Self {
            name: name.into(),
            elements,
            dtype,
            persistent: true,
            identity,
            trainable: true,
        }
    }

    /// A persistent buffer.
    pub fn buffer(
        name: impl Into<String>,
        elements: u64,
        dtype: ElementType,
        identity: u64,
    ) -> Self {
        Self {
            trainable: false,
            ..Self::parameter(name, elements, dtype, identity)
        }
    }

    /// The memory it takes in its own type.
    pub const fn size(&self) -> MemorySize {
        self.dtype.of(self.elements)
    }
}

/// A module without its values: its class, what it holds itself, and its children in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleShape {
    /// Its name in its parent, without dots; empty for the whole model.
    pub name: String,
    /// Its class, as configs name it: `GPT2Block`.
    pub class: String,
    /// Parameters that it holds itself.
    pub parameters: Vec<TensorShape>,
    /// Buffers that it holds itself.
    pub buffers: Vec<TensorShape>,
    /// Its children, in order.
    pub children: Vec<Self>,
}

impl ModuleShape {
    /// A module that holds nothing yet.
    pub fn new(name: impl Into<String>, class: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            class: class.into(),
            ..Self::default()
        }
    }

    /// The module at a dotted name; `""` is this one.
    pub fn find(&self, name: &str) -> Option<&Self> {
        let mut module = self;
        for part in name.split('.').filter(|_| !name.is_empty()) {
            module = module.children.iter().find(|child| child.name == part)?;
        }
        Some(module)
    }

    /// Calls `f` with every module and its dotted name, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&str, &'a Self)) {
        self.visit_below("", f);
    }

    fn visit_below<'a>(&'a self, name: &str, f: &mut impl FnMut(&str, &'a Self)) {
        f(name, self);
        for child in &self.children {
            child.visit_below(&joined(name, &child.name), f);
        }
    }

    /// The dotted names of all modules, parents first.
    pub fn module_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.visit(&mut |name, _| names.push(name.to_owned()));
        names
    }

    /// All parameters with their dotted names, parents first; tied ones under each of their names.
    pub fn named_parameters(&self) -> Vec<(String, &TensorShape)> {
        self.named(|module| &module.parameters)
    }

    /// All buffers with their dotted names, parents first.
    pub fn named_buffers(&self) -> Vec<(String, &TensorShape)> {
        self.named(|module| &module.buffers)
    }

    fn named<'a>(
        &'a self,
        of: impl Fn(&'a Self) -> &'a Vec<TensorShape>,
    ) -> Vec<(String, &'a TensorShape)> {
        let mut named = Vec::new();
        self.visit(&mut |name, module| {
            let tensors = of(module).iter();
            named.extend(tensors.map(|tensor| (joined(name, &tensor.name), tensor)));
        });
        named
    }

    /// Checks that every part of every module has a name of its own.
    ///
    /// # Errors
    /// [`DeviceMapError::Name`] for the first name that is there twice, is empty or has a dot in it.
    pub fn check_names(&self) -> Result<(), DeviceMapError> {
        let mut wrong = None;
        self.visit(&mut |module, shape| {
            if wrong.is_none() {
                wrong = shape
                    .wrong_name()
                    .map(|name| (module.to_owned(), name.to_owned()));
            }
        });
        wrong.map_or(Ok(()), |(module, name)| {
            Err(DeviceMapError::Name { module, name })
        })
    }

    fn wrong_name(&self) -> Option<&str> {
        let tensors = self.parameters.iter().chain(&self.buffers);
        let tensors = tensors.map(|tensor| tensor.name.as_str());
        let children = self.children.iter().map(|child| child.name.as_str());
        let mut seen = HashSet::new();
        tensors
            .chain(children)
            .find(|name| name.is_empty() || name.contains('.') || !seen.insert(*name))
    }

    /// The names of the state of the model: for each module its parameters, its persistent buffers,
    /// then its children.
    pub fn state_dict_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.visit(&mut |name, module| {
            let tensors = module.parameters.iter().chain(&module.buffers);
            let tensors = tensors.filter(|tensor| tensor.persistent);
            names.extend(tensors.map(|tensor| joined(name, &tensor.name)));
        });
        names
    }
}

/// The dotted name of what is called `name` in the module `parent`.
pub(super) fn joined(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        _ => format!("{parent}.{name}"),
    }
}

/// Whether `name` is `module` or below it. `h.10` is not below `h.1`; all are below `""`.
pub(super) fn is_within(name: &str, module: &str) -> bool {
    let rest = match module {
        "" => return true,
        _ => name.strip_prefix(module),
    };
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
