//! The largest layer: what has to fit into memory in one piece.

use super::module::{Module, Name};

/// The size of the largest layer, and all layers of that size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Largest {
    pub(crate) bytes: u64,
    pub(crate) layers: Vec<Layer>,
}

/// A layer by its place in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Dotted name.
    pub(crate) name: String,
    /// Its class; none for a tensor or where only the names of tensors are known.
    pub(crate) class: Option<Name>,
}

impl Largest {
    /// Takes note of one more layer.
    pub(crate) fn offer(&mut self, name: &str, class: Option<&Name>, bytes: u64) {
        if bytes < self.bytes {
            return;
        }
        if bytes > self.bytes {
            self.bytes = bytes;
            self.layers.clear();
        }
        self.layers.push(Layer {
            name: name.to_owned(),
            class: class.cloned(),
        });
    }
}

/// Finds the largest layer of a model.
///
/// A layer is a module without children or of a class in `no_split`. A parameter or buffer that
/// the root itself holds is a layer as well.
pub(crate) fn largest_layer(root: &Module, no_split: &[Name]) -> Largest {
    let mut largest = Largest::default();
    for parameter in &root.parameters {
        largest.offer(parameter.name, None, parameter.bytes());
    }
    for (name, child) in &root.children {
        descend(name, child, no_split, &mut largest);
    }
    for buffer in &root.buffers {
        largest.offer(buffer.name, None, buffer.bytes());
    }
    largest
}

fn descend(name: &str, module: &Module, no_split: &[Name], largest: &mut Largest) {
    if module.children.is_empty() || no_split.contains(&module.class) {
        return largest.offer(name, Some(&module.class), module.bytes());
    }
    for (child_name, child) in &module.children {
        descend(&format!("{name}.{child_name}"), child, no_split, largest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::module::{Bias, linear};
    use super::*;

    fn names(largest: &Largest) -> Vec<&str> {
        largest.layers.iter().map(|l| l.name.as_str()).collect()
    }

    #[test]
    fn blocks_that_may_not_be_split_count_as_a_whole() {
        let block = || Module::sequence([linear(4, 4, Bias::No), linear(4, 4, Bias::No)]);
        let block = || Module {
            class: "Block".into(),
            ..block()
        };
        let root = Module::new("Net")
            .child("head", linear(4, 6, Bias::No))
            .child("blocks", Module::list(2, |_| block()));
        let largest = largest_layer(&root, &[]);
        assert_eq!((largest.bytes, names(&largest)), (96, vec!["head"]));
        let largest = largest_layer(&root, &["Block".into()]);
        assert_eq!(largest.bytes, 128);
        assert_eq!(names(&largest), ["blocks.0", "blocks.1"]);
    }

    #[test]
    fn what_the_root_holds_itself_is_a_layer() {
        let root = Module::new("Net")
            .child("small", linear(1, 1, Bias::No))
            .parameter("table", &[10, 10]);
        assert_eq!(names(&largest_layer(&root, &[])), ["table"]);
    }

    #[test]
    fn a_parameter_beside_children_is_no_layer() {
        let inner = Module::new("Inner")
            .parameter("table", &[10, 10])
            .child("small", linear(1, 1, Bias::No));
        let root = Module::new("Net").child("inner", inner);
        let largest = largest_layer(&root, &[]);
        assert_eq!((largest.bytes, names(&largest)), (4, vec!["inner.small"]));
    }
}
