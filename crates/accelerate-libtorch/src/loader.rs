//! Whether the dynamic loader would find a library.

use std::fs;
use std::path::{Path, PathBuf};

/// The loader's list of the libraries in the system's folders.
const CACHE: &str = "/etc/ld.so.cache";

/// Folders that the loader looks into without being told.
const DEFAULT_DIRS: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// Libraries that belong to the C and C++ run time, which every system that compiles has; some
/// systems keep them where only their own loader knows.
const RUN_TIME: [&str; 10] = [
    "ld-linux",
    "libc.",
    "libdl.",
    "libgcc_s.",
    "libm.",
    "libpthread.",
    "librt.",
    "libstdc++.",
    "libutil.",
    "linux-vdso.",
];

/// Answers for one process environment.
#[derive(Debug)]
pub(super) struct Loader<'a> {
    library_path: &'a [PathBuf],
    cache: Vec<u8>,
}

impl<'a> Loader<'a> {
    /// A loader that looks into `library_path` first, as with `LD_LIBRARY_PATH`.
    pub(super) fn new(library_path: &'a [PathBuf]) -> Self {
        Self {
            library_path,
            cache: fs::read(CACHE).unwrap_or_default(),
        }
    }

    /// Whether `name` is found for a library in `origin` whose own search path is `search_path`.
    pub(super) fn finds(&self, name: &str, origin: &Path, search_path: &[String]) -> bool {
        if RUN_TIME.iter().any(|start| name.starts_with(start)) {
            return true;
        }
        let own = search_path.iter().map(|dir| expand(dir, origin));
        let default = DEFAULT_DIRS.iter().map(PathBuf::from);
        own.chain(self.library_path.iter().cloned())
            .chain(default)
            .any(|dir| dir.join(name).exists())
            || self.is_cached(name)
    }

    /// The cache holds the name of each library between two zero bytes.
    fn is_cached(&self, name: &str) -> bool {
        let name = name.as_bytes();
        self.cache
            .split(|byte| *byte == 0)
            .any(|entry| entry == name)
    }
}

/// Puts the library's own folder in place of `$ORIGIN`.
fn expand(dir: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    PathBuf::from(
        dir.replace("${ORIGIN}", &origin)
            .replace("$ORIGIN", &origin),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_path_then_library_path_are_searched() {
        let dir = tempfile::tempdir().unwrap();
        let (lib, other) = (dir.path().join("lib"), dir.path().join("other"));
        fs::create_dir(&lib).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("libodd-name.so.9"), "").unwrap();

        let none = Loader::new(&[]);
        assert!(!none.finds("libodd-name.so.9", &lib, &[]));
        assert!(none.finds("libodd-name.so.9", &lib, &["$ORIGIN/../other".to_owned()]));
        assert!(none.finds("libodd-name.so.9", &lib, &["${ORIGIN}/../other".to_owned()]));
        assert!(none.finds("libstdc++.so.6", &lib, &[]));
        let paths = [other];
        assert!(Loader::new(&paths).finds("libodd-name.so.9", &lib, &[]));
    }
}
