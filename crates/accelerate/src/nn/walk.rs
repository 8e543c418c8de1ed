//! The walks over a module tree.

use std::collections::HashSet;

use tch::Tensor;

use super::{Buffer, Member, MemberMut, Module, ModuleState, Parameter};

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

/// The root under the empty name, then every module below it, parents before children; clones
/// of one module once.
pub(crate) fn modules(root: &dyn Module) -> Vec<(String, &dyn Module)> {
    let mut found = modules_by_every_name(root);
    let mut seen = HashSet::new();
    found.retain(|(_, module)| {
        module
            .state()
            .is_none_or(|state| seen.insert(ModuleState::identity(state)))
    });
    found
}

/// As [`modules`], with clones of one module under each of their names.
pub(crate) fn modules_by_every_name(root: &dyn Module) -> Vec<(String, &dyn Module)> {
    let mut found = vec![(String::new(), root)];
    members(root, "", &mut |name, member| {
        if let Member::Module(module) = member {
            found.push((name, module));
        }
    });
    found
}

/// The direct child modules with their names.
pub(crate) fn children(root: &dyn Module) -> Vec<(String, &dyn Module)> {
    let mut found = Vec::new();
    root.members(&mut |name, member| {
        if let Member::Module(module) = member {
            found.push((name.to_owned(), module));
        }
    });
    found
}

/// What a checkpoint holds, in PyTorch's order: of each module its parameters, then its
/// persistent buffers, then its children. Tied tensors stand under each of their names.
pub(crate) fn state(root: &dyn Module) -> Vec<(String, &Tensor)> {
    let mut found = Vec::new();
    state_below(root, "", &mut found);
    found
}

fn state_below<'m>(module: &'m dyn Module, prefix: &str, found: &mut Vec<(String, &'m Tensor)>) {
    let (mut buffers, mut children) = (Vec::new(), Vec::new());
    module.members(&mut |name, member| {
        let name = below(prefix, name);
        match member {
            Member::Parameter(parameter) => found.push((name, parameter.tensor())),
            Member::Buffer(buffer) if buffer.is_persistent() => {
                buffers.push((name, buffer.tensor()));
            }
            Member::Buffer(_) => {}
            Member::Module(child) => children.push((name, child)),
        }
    });
    found.append(&mut buffers);
    for (name, child) in children {
        state_below(child, &name, found);
    }
}

/// One tensor of a tree, with the right to replace it.
pub(crate) enum TensorMut<'m> {
    Parameter(&'m mut Parameter),
    Buffer(&'m mut Buffer),
}

/// Calls `visit` with every parameter and buffer at any depth, under each of their names.
///
/// # Errors
/// The first error of `visit`, which then is not called again.
pub(crate) fn tensors_mut<E>(
    root: &mut dyn Module,
    visit: &mut dyn FnMut(String, TensorMut<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut result = Ok(());
    tensors_mut_below(root, "", &mut |name, tensor| {
        if result.is_ok() {
            result = visit(name, tensor);
        }
    });
    result
}

fn tensors_mut_below(
    module: &mut dyn Module,
    prefix: &str,
    visit: &mut dyn FnMut(String, TensorMut<'_>),
) {
    module.members_mut(&mut |name, member| {
        let name = below(prefix, name);
        match member {
            MemberMut::Parameter(parameter) => visit(name, TensorMut::Parameter(parameter)),
            MemberMut::Buffer(buffer) => visit(name, TensorMut::Buffer(buffer)),
            MemberMut::Module(child) => tensors_mut_below(child, &name, visit),
        }
    });
}

/// The dotted name of a member.
fn below(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
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
        let name = below(prefix, name);
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
