//! Members by their dotted names.

use accelerate_plan::config::nearest;

use super::{Buffer, MemberMut, Module, Parameter, walk};
use crate::{Error, Result};

/// The module with this name; the root for the empty name.
pub(super) fn submodule<'m>(root: &'m dyn Module, name: &str) -> Result<&'m dyn Module> {
    // Not `walk::modules`, which lists clones of a module once: each has its own name.
    let all = walk::modules_by_every_name(root);
    pick(root, "module", name, all)
}

/// The parameter with this name.
pub(super) fn parameter<'m>(root: &'m dyn Module, name: &str) -> Result<&'m Parameter> {
    pick(root, "parameter", name, walk::parameters(root))
}

/// The buffer with this name.
pub(super) fn buffer<'m>(root: &'m dyn Module, name: &str) -> Result<&'m Buffer> {
    pick(root, "buffer", name, walk::buffers(root))
}

fn pick<T>(
    root: &dyn Module,
    what: &'static str,
    name: &str,
    mut all: Vec<(String, T)>,
) -> Result<T> {
    match all.iter().position(|(found, _)| found == name) {
        Some(place) => Ok(all.swap_remove(place).1),
        None => Err(no_such(
            root,
            what,
            name,
            all.into_iter().map(|(name, _)| name),
        )),
    }
}

/// The error that names what there is.
pub(super) fn no_such(
    root: &dyn Module,
    what: &'static str,
    name: &str,
    known: impl Iterator<Item = String>,
) -> Error {
    let known: Vec<String> = known.filter(|name| !name.is_empty()).collect();
    Error::NoSuchMember {
        class: root.class_name(),
        what,
        name: name.to_owned(),
        nearest: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
        known,
    }
}

/// Puts `new` into the place of the module with this name.
pub(super) fn replace(root: &mut dyn Module, name: &str, new: Box<dyn Module>) -> Result<()> {
    let class = root.class_name();
    if name.is_empty() {
        return Err(Error::Argument {
            operation: "replace_submodule",
            expected: "the name of a module below the root".to_owned(),
            found: "the empty name, which is the root's; assign to it instead".to_owned(),
        });
    }
    submodule(root, name)?;
    let mut left = Some(new);
    let mut expected = "another module";
    at(root, name, &mut |place| {
        expected = place.type_name();
        if let Some(new) = left.take() {
            left = new.put_into(place.as_any_mut()).err();
        }
    });
    match left {
        None => Ok(()),
        Some(new) => Err(Error::MemberType {
            class,
            name: name.to_owned(),
            expected,
            found: (*new).type_name(),
        }),
    }
}

/// Calls `visit` with the module of this name.
fn at(module: &mut dyn Module, path: &str, visit: &mut dyn FnMut(&mut dyn Module)) {
    module.members_mut(&mut |name, member| {
        // A key of a map may have dots itself, so the path is not cut before it is compared.
        let Some(rest) = path.strip_prefix(name) else {
            return;
        };
        match (member, rest.strip_prefix('.')) {
            (MemberMut::Module(found), _) if rest.is_empty() => visit(found),
            (MemberMut::Module(parent), Some(rest)) => at(parent, rest, visit),
            _ => {}
        }
    });
}
