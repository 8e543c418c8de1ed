//! Names of metrics and parameters.

/// The longest name.
const LONGEST: usize = 250;

/// Whether servers of every age take the name: letters, digits, `_`, `-`, `.`, `/` and spaces, and a
/// path that leads nowhere else.
pub(super) fn is_key(name: &str) -> bool {
    let plain = name
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' '));
    let parts = || name.split('/');
    plain
        && !name.is_empty()
        && name.chars().count() <= LONGEST
        && parts().all(|part| !part.is_empty() && part != "." && part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for name in ["loss", "train/loss", "a b-c_d.e"] {
            assert!(is_key(name), "{name}");
        }
        for name in ["", "/a", "a/../b", "..", "a//b", "a:b", &"x".repeat(251)] {
            assert!(!is_key(name), "{name}");
        }
    }
}
