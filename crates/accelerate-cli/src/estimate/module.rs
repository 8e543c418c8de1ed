//! A model without tensors: a tree of modules that knows names, shapes and types.
//!
//! Families of models ([`skeleton`](super::skeleton)) build it from small pieces:
//!
//! ```text
//! Module::new("BertPooler").child("dense", linear(768, 768, Bias::Yes))
//! ```
//!
//! Sizes never wrap around: a tree that is too large for a `u64` counts as `u64::MAX` bytes, which
//! [`Skeleton`](super::skeleton::Skeleton) refuses.

use std::borrow::Cow;

use accelerate_formats::Dtype;

/// A name of a class or of a child.
pub(crate) type Name = Cow<'static, str>;

/// A parameter or a buffer.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    /// Whether a loaded model keeps this one in the memory of another tensor (tied weights).
    pub(crate) shared: bool,
}

impl Tensor {
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all, &n| all.saturating_mul(n))
    }

    pub(crate) fn bytes(&self) -> u64 {
        let bytes = u128::from(self.elements()) * self.dtype.size_in_bits() as u128 / 8;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// A module: its class, what it holds itself, and its children in order.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) class: Name,
    pub(crate) parameters: Vec<Tensor>,
    pub(crate) buffers: Vec<Tensor>,
    pub(crate) children: Vec<(Name, Module)>,
}

impl Module {
    /// A module that holds nothing yet.
    pub(crate) fn new(class: impl Into<Name>) -> Self {
        Self {
            class: class.into(),
            parameters: Vec::new(),
            buffers: Vec::new(),
            children: Vec::new(),
        }
    }

    /// `count` modules, called `0`, `1`, ...
    pub(crate) fn list(count: u64, module: impl Fn(u64) -> Self) -> Self {
        let mut list = Self::new("ModuleList");
        list.children = (0..count)
            .map(|i| (i.to_string().into(), module(i)))
            .collect();
        list
    }

    /// Modules that run one after another, called `0`, `1`, ...
    pub(crate) fn sequence(modules: impl IntoIterator<Item = Self>) -> Self {
        let mut sequence = Self::new("Sequential");
        let named = modules.into_iter().enumerate();
        sequence.children = named.map(|(i, m)| (i.to_string().into(), m)).collect();
        sequence
    }

    pub(crate) fn child(mut self, name: impl Into<Name>, module: Self) -> Self {
        self.children.push((name.into(), module));
        self
    }

    /// A child that only some configurations have.
    pub(crate) fn child_if(
        self,
        wanted: bool,
        name: &'static str,
        module: impl FnOnce() -> Self,
    ) -> Self {
        if wanted {
            self.child(name, module())
        } else {
            self
        }
    }

    /// A parameter in float32.
    pub(crate) fn parameter(mut self, name: &'static str, shape: &[u64]) -> Self {
        self.parameters.push(tensor(name, Dtype::F32, shape));
        self
    }

    pub(crate) fn buffer(mut self, name: &'static str, dtype: Dtype, shape: &[u64]) -> Self {
        self.buffers.push(tensor(name, dtype, shape));
        self
    }

    /// Marks the parameter `name` as living in the memory of another one, if `tied`.
    pub(crate) fn tied(mut self, name: &str, tied: bool) -> Self {
        for parameter in self.parameters.iter_mut().filter(|p| p.name == name) {
            parameter.shared = tied;
        }
        self
    }

    /// The bytes of everything in this tree. Tied parameters count each time.
    pub(crate) fn bytes(&self) -> u64 {
        let own = self.parameters.iter().chain(&self.buffers);
        let own = own.fold(0, |sum: u64, t| sum.saturating_add(t.bytes()));
        let children = self.children.iter();
        children.fold(own, |sum, (_, child)| sum.saturating_add(child.bytes()))
    }

    /// Calls `f` with this module and all below it, parents first.
    pub(crate) fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Self)) {
        f(self);
        for (_, child) in &self.children {
            child.visit(f);
        }
    }
}

fn tensor(name: &'static str, dtype: Dtype, shape: &[u64]) -> Tensor {
    Tensor {
        name,
        dtype,
        shape: shape.to_vec(),
        shared: false,
    }
}

/// Whether a layer adds a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    Yes,
    No,
}

impl Bias {
    pub(crate) fn when(wanted: bool) -> Self {
        if wanted { Self::Yes } else { Self::No }
    }
}

pub(crate) fn linear(inputs: u64, outputs: u64, bias: Bias) -> Module {
    weighted("Linear", &[outputs, inputs], bias)
}

/// A convolution with a square kernel.
pub(crate) fn conv2d(inputs: u64, outputs: u64, kernel: u64, bias: Bias) -> Module {
    weighted("Conv2d", &[outputs, inputs, kernel, kernel], bias)
}

pub(crate) fn embedding(rows: u64, columns: u64) -> Module {
    weighted("Embedding", &[rows, columns], Bias::No)
}

pub(crate) fn layer_norm(size: u64) -> Module {
    weighted("LayerNorm", &[size], Bias::Yes)
}

/// A norm of some class with a scale only.
pub(crate) fn scale_norm(class: impl Into<Name>, size: u64) -> Module {
    weighted(class, &[size], Bias::No)
}

pub(crate) fn batch_norm(size: u64) -> Module {
    weighted("BatchNorm2d", &[size], Bias::Yes)
        .buffer("running_mean", Dtype::F32, &[size])
        .buffer("running_var", Dtype::F32, &[size])
        .buffer("num_batches_tracked", Dtype::I64, &[])
}

/// A module with a `weight` and, for each row of it, a `bias`.
fn weighted(class: impl Into<Name>, shape: &[u64], bias: Bias) -> Module {
    let module = Module::new(class).parameter("weight", shape);
    match (bias, shape) {
        (Bias::Yes, [rows, ..]) => module.parameter("bias", &[*rows]),
        _ => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_everything_below() {
        let module = Module::new("Block")
            .parameter("scale", &[3])
            .buffer("positions", Dtype::I64, &[1, 5])
            .child("dense", linear(4, 2, Bias::Yes))
            .child("norm", batch_norm(2));
        assert_eq!(
            module.bytes(),
            3 * 4 + 5 * 8 + (8 + 2) * 4 + (4 + 4) * 4 + 8
        );
    }

    #[test]
    fn a_size_beyond_all_memory_does_not_wrap() {
        let huge = embedding(1 << 40, 1 << 40);
        assert_eq!(huge.bytes(), u64::MAX);
        assert_eq!(Module::sequence([huge.clone(), huge]).bytes(), u64::MAX);
    }

    #[test]
    fn only_the_named_parameter_is_tied() {
        let head = linear(2, 3, Bias::Yes).tied("weight", true);
        let shared: Vec<_> = head.parameters.iter().map(|p| (p.name, p.shared)).collect();
        assert_eq!(shared, [("weight", true), ("bias", false)]);
    }
}
