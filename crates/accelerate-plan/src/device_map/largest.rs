//! What must fit in one piece.

use indexmap::IndexMap;

use super::{MemorySize, ModuleShape, ModuleSizes, compute_module_sizes, queue::Item};

/// The size of the largest layer, and all layers of that size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LargestLayer {
    /// The size.
    pub size: MemorySize,
    /// The dotted names, in the order of the model.
    pub names: Vec<String>,
}

impl LargestLayer {
    /// The largest layer among some parts of a model.
    pub(super) fn among<'i, 'm: 'i>(
        items: impl IntoIterator<Item = &'i Item<'m>>,
        sizes: &ModuleSizes,
        no_split: &[String],
    ) -> Self {
        let mut largest = Self::default();
        for item in items {
            match item.module {
                Some(module) => largest.descend(&item.name, module, sizes, no_split),
                None => largest.offer(&item.name, sizes),
            }
        }
        largest
    }

    fn descend(
        &mut self,
        name: &str,
        module: &ModuleShape,
        sizes: &ModuleSizes,
        no_split: &[String],
    ) {
        if module.children.is_empty() || no_split.contains(&module.class) {
            return self.offer(name, sizes);
        }
        for child in &module.children {
            self.descend(&format!("{name}.{}", child.name), child, sizes, no_split);
        }
    }

    fn offer(&mut self, name: &str, sizes: &ModuleSizes) {
        let size = sizes.get(name);
        if size > self.size {
            self.size = size;
            self.names.clear();
        }
        if size == self.size {
            self.names.push(name.to_owned());
        }
    }
}

/// Finds the largest layer of a model, given the sizes of its modules.
///
/// A layer is a module without children or of a class in `no_split_module_classes`. A parameter or
/// buffer that the model itself holds is a layer as well, one that another module holds beside its
/// children is not.
///
/// # Source
/// `get_max_layer_size`.
pub fn get_max_layer_size(
    model: &ModuleShape,
    sizes: &ModuleSizes,
    no_split_module_classes: &[String],
) -> LargestLayer {
    let items = Item::parts_of("", model);
    LargestLayer::among(&items, sizes, no_split_module_classes)
}

/// The size of a model in its own types, and its largest layer.
///
/// # Source
/// `calculate_maximum_sizes`, which asks the model itself which classes may not be split.
pub fn calculate_maximum_sizes(
    model: &ModuleShape,
    no_split_module_classes: &[String],
) -> (MemorySize, LargestLayer) {
    let sizes = compute_module_sizes(model, None, &IndexMap::new());
    let largest = get_max_layer_size(model, &sizes, no_split_module_classes);
    (sizes.total(), largest)
}
