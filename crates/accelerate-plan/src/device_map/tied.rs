//! Tensors that have more than one name.

use std::collections::{BTreeSet, HashSet};

use indexmap::IndexMap;

use super::{ModuleShape, queue::Item, shape::is_within};

/// Finds the parameters that have more than one name: each group sorted, and the groups too.
///
/// # Source
/// `find_tied_parameters`. Differs: the order of the groups is always the same.
pub fn find_tied_parameters(model: &ModuleShape) -> Vec<Vec<String>> {
    let mut names: IndexMap<u64, Vec<String>> = IndexMap::new();
    for (name, tensor) in model.named_parameters() {
        names.entry(tensor.identity).or_default().push(name);
    }
    let groups = names.into_values().filter(|group| group.len() > 1);
    let sorted: BTreeSet<_> = groups
        .map(|mut group| {
            group.sort_unstable();
            group
        })
        .collect();
    sorted.into_iter().collect()
}

/// The names of the items that must be in the same place as `name`, in their order: those that share
/// a tensor with it, and those that share one with them.
pub(super) fn tied_items<'i, 'm: 'i>(
    name: &str,
    items: impl IntoIterator<Item = &'i Item<'m>> + Clone,
    tied: &[Vec<String>],
) -> Vec<String> {
    let mut together = vec![name];
    let mut along: HashSet<&str> = HashSet::new();
    let mut groups: Vec<_> = tied.iter().collect();
    while let Some(index) = groups.iter().position(|group| touches(group, &together)) {
        let group = groups.swap_remove(index);
        for item in items.clone() {
            if touches(group, &[&item.name]) && along.insert(&item.name) {
                together.push(&item.name);
            }
        }
    }
    let names = items.into_iter().map(|item| &item.name);
    let names = names.filter(|name| along.contains(name.as_str()));
    names.cloned().collect()
}

/// Whether a name of `group` is one of `parts` or below it.
fn touches(group: &[String], parts: &[&str]) -> bool {
    let mut members = group.iter();
    members.any(|member| parts.iter().any(|part| is_within(member, part)))
}
