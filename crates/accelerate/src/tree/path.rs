use std::fmt;

/// The way from a tree to one of its tensors.
///
/// It lives on the stack while a tree is walked. Written as `loss`, `pair[0].mask`,
/// `batch[ids]`; empty where the tree is the tensor itself.
#[derive(Clone, Copy)]
pub struct TreePath<'a> {
    outer: Option<&'a TreePath<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'static str),
    Index(usize),
    Key(&'a dyn fmt::Display),
}

impl TreePath<'_> {
    /// Where a walk begins.
    #[must_use]
    pub fn root() -> Self {
        Self {
            outer: None,
            step: Step::Root,
        }
    }

    /// The way to a named field.
    #[must_use]
    pub fn field<'b>(&'b self, name: &'static str) -> TreePath<'b> {
        self.then(Step::Field(name))
    }

    /// The way to an item of a list or tuple.
    #[must_use]
    pub fn index<'b>(&'b self, index: usize) -> TreePath<'b> {
        self.then(Step::Index(index))
    }

    /// The way to an entry of a map.
    #[must_use]
    pub fn key<'b>(&'b self, key: &'b dyn fmt::Display) -> TreePath<'b> {
        self.then(Step::Key(key))
    }

    fn then<'b>(&'b self, step: Step<'b>) -> TreePath<'b> {
        TreePath {
            outer: Some(self),
            step,
        }
    }

    /// Whether a field or a key on the way, at any depth, has this name.
    #[must_use]
    pub fn passes(&self, name: &str) -> bool {
        let here = match self.step {
            Step::Root | Step::Index(_) => false,
            Step::Field(field) => field == name,
            Step::Key(key) => key.to_string() == name,
        };
        here || self.outer.is_some_and(|outer| outer.passes(name))
    }
}

impl fmt::Display for TreePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(outer) = self.outer else {
            return Ok(());
        };
        outer.fmt(f)?;
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if outer.outer.is_none() => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl fmt::Debug for TreePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_like_the_expression_that_reaches_the_tensor() {
        let root = TreePath::root();
        let (pair, key) = (root.field("pair"), "mask");
        let item = pair.index(1);
        let entry = item.key(&key);
        let tensor = entry.field("ids");
        assert_eq!(tensor.to_string(), "pair[1][mask].ids");
        assert_eq!(root.to_string(), "");
        assert!(tensor.passes("mask") && tensor.passes("pair") && tensor.passes("ids"));
        assert!(!tensor.passes("1") && !item.passes("mask"));
    }
}
