//! Names with the parts that wrappers of modules leave in them.

/// What compiling, sharding and recomputing put into a name, anywhere in it.
const INNER: [&str; 3] = [
    "_orig_mod",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
];
/// What data parallel puts in front.
const OUTER: &str = "module";

/// The name without the parts that wrappers put into it, if that is one that `is_known`.
///
/// A module that is really called `module` keeps its name: as few of them as possible are left out.
pub(super) fn without_wrappers(name: &str, is_known: impl Fn(&str) -> bool) -> Option<String> {
    let parts: Vec<&str> = name
        .split('.')
        .filter(|part| !INNER.contains(part))
        .collect();
    let mut rest = parts.as_slice();
    loop {
        let candidate = rest.join(".");
        if candidate != name && is_known(&candidate) {
            return Some(candidate);
        }
        match rest.split_first() {
            Some((&OUTER, after)) => rest = after,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_left_out_and_modules_of_that_name_kept() {
        let known = ["w", "module.x", "a.b"];
        let find = |name| without_wrappers(name, |candidate| known.contains(&candidate));
        assert_eq!(find("module.w").as_deref(), Some("w"));
        assert_eq!(find("_orig_mod.module.w").as_deref(), Some("w"));
        assert_eq!(find("module.module.x").as_deref(), Some("module.x"));
        assert_eq!(find("a._orig_mod.b").as_deref(), Some("a.b"));
        assert_eq!(
            find("module.a._fsdp_wrapped_module.b").as_deref(),
            Some("a.b")
        );
        assert_eq!(find("w"), None, "it is no other name");
        assert_eq!(find("b.module.w"), None);
        assert_eq!(find("module"), None);
    }
}
