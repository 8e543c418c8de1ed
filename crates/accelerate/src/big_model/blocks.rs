//! Which modules are brought together.

use std::collections::{HashMap, HashSet};

use crate::nn::Module;

/// Numbers the blocks of a model, in the order of the tree.
///
/// A block is an item of the outermost list of modules around a module; a module outside of all
/// lists is a block by itself.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The names of lists of modules.
    lists: HashSet<String>,
    numbers: HashMap<String, usize>,
}

impl Blocks {
    pub(super) fn of(root: &dyn Module) -> Self {
        let all = root.named_modules().into_iter();
        let lists = all.filter(|(_, module)| module.state().is_none());
        Self {
            lists: lists.map(|(name, _)| name).collect(),
            numbers: HashMap::new(),
        }
    }

    /// The number of the block that a module belongs to.
    pub(super) fn number(&mut self, name: &str) -> usize {
        let block = self.block_name(name).to_owned();
        let next = self.numbers.len();
        *self.numbers.entry(block).or_insert(next)
    }

    /// The part of the name that says the block.
    fn block_name<'n>(&self, name: &'n str) -> &'n str {
        let dots = name.match_indices('.').map(|(dot, _)| dot);
        let mut is_item = self.lists.contains("");
        for end in dots.chain([name.len()]) {
            let part = name.get(..end).unwrap_or(name);
            if is_item {
                return part;
            }
            is_item = self.lists.contains(part);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use crate::nn::{Factory, Linear, ModuleState};

    #[derive(Debug, Module)]
    struct Layer {
        inner: Linear,
        state: ModuleState,
    }

    #[derive(Debug, Module)]
    struct Net {
        head: Linear,
        layers: Vec<Layer>,
        state: ModuleState,
    }

    #[test]
    fn items_of_lists_are_blocks() -> Result<()> {
        let factory = Factory::default();
        let layer = || -> Result<Layer> {
            Ok(Layer {
                inner: Linear::new(1, 1, &factory)?,
                state: ModuleState::default(),
            })
        };
        let net = Net {
            head: Linear::new(1, 1, &factory)?,
            layers: vec![layer()?, layer()?],
            state: ModuleState::default(),
        };
        let mut blocks = Blocks::of(&net);
        assert_eq!(blocks.block_name("layers.1.inner"), "layers.1");
        assert_eq!(blocks.block_name("layers.0"), "layers.0");
        assert_eq!(blocks.block_name("head"), "head");
        assert_eq!(blocks.block_name(""), "");
        let numbers = ["head", "layers.0.inner", "layers.0", "layers.1.inner"];
        let numbers = numbers.map(|name| blocks.number(name));
        assert_eq!(numbers, [0, 1, 1, 2]);
        Ok(())
    }
}
