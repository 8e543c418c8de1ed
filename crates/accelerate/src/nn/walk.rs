//! The walks over a module tree.

use std::collections::HashSet;

use super::{Buffer, Member, Module, Parameter};

/// Every parameter with its dotted name, a tied one under each of its names.
pub(crate) fn parameters(root: &dyn Module) -> Vec<(String, &Parameter)> {
    let mut found = Vec::new();
    members(root, "", &mut |name, member| {
        if let Member::Parameter(parameter) = member {
            found.push((name, parameter));
        }
    });
    found
}

/// Every buffer with its dotted name, a shared one under each of its names.
pub(crate) fn buffers(root: &dyn Module) -> Vec<(String, &Buffer)> {
    let mut found = Vec::new();
    members(root, "", &mut |name, member| {
        if let Member::Buffer(buffer) = member {
            found.push((name, buffer));
        }
    });
    found
}

/// The root under the empty name, then every module below it, parents before children.
pub(crate) fn modules(root: &dyn Module) -> Vec<(String, &dyn Module)> {
    let mut found = vec![(String::new(), root)];
    members(root, "", &mut |name, member| {
        if let Member::Module(module) = member {
            found.push((name, module));
        }
    });
    found
}

/// Keeps the first of all items that share an identity.
pub(crate) fn without_repeats<T>(
    items: Vec<(String, &T)>,
    identity: impl Fn(&T) -> usize,
) -> Vec<(String, &T)> {
    let mut seen = HashSet::new();
    items
        .into_iter()
        .filter(|(_, item)| seen.insert(identity(item)))
        .collect()
}

/// Calls `visit` with every member at any depth: own tensors before children, as PyTorch lists them.
fn members<'m>(module: &'m dyn Module, prefix: &str, visit: &mut dyn FnMut(String, Member<'m>)) {
    let mut children = Vec::new();
    module.members(&mut |name, member| {
        let name = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        match member {
            Member::Module(child) => children.push((name, child)),
            tensor => visit(name, tensor),
        }
    });
    for (name, child) in children {
        visit(name.clone(), Member::Module(child));
        members(child, &name, visit);
    }
}
