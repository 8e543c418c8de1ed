//! The version of a libtorch, and the one we need.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The release that Accelerate is built for; any patch of it fits.
pub const NEEDED_VERSION: &str = "2.13";

/// A libtorch version as its files state it, such as `2.13.0+cu130`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(String);

impl Version {
    /// Takes the text of a version, without surrounding white space.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Whether this is a patch of [`NEEDED_VERSION`], whatever its build suffix.
    pub fn is_needed(&self) -> bool {
        let mut parts = self.0.split(['.', '+']);
        let mut needed = NEEDED_VERSION.split('.');
        parts.next() == needed.next() && parts.next() == needed.next()
    }

    /// Reads the version of a libtorch from the first file that states one: `build-version` of a
    /// libtorch folder, `version.py` of a Python package, or the C++ header.
    pub(super) fn read(folder: &Path, include_dirs: &[PathBuf]) -> Option<Self> {
        fs::read_to_string(folder.join("build-version"))
            .ok()
            .filter(|text| !text.trim().is_empty())
            .map(|text| Self::new(&text))
            .or_else(|| Self::read_quoted(&folder.join("version.py"), "__version__"))
            .or_else(|| {
                include_dirs.iter().find_map(|dir| {
                    Self::read_quoted(&dir.join("torch/headeronly/version.h"), "TORCH_VERSION")
                })
            })
    }

    /// Reads the first quoted text on the line of a file that holds `name` as a whole word.
    fn read_quoted(path: &Path, name: &str) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        text.lines()
            .filter(|line| line.split_whitespace().any(|word| word == name))
            .find_map(|line| line.split(['\'', '"']).nth(1))
            .map(Self::new)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patches_of_the_needed_release_fit() {
        for fits in ["2.13.0", "2.13.1+cu130", "2.13", " 2.13.0\n"] {
            assert!(Version::new(fits).is_needed(), "{fits}");
        }
        for other in ["2.1.3", "2.130.0", "2.12.1", "3.13.0", "", "2"] {
            assert!(!Version::new(other).is_needed(), "{other}");
        }
    }

    #[test]
    fn each_kind_of_folder_states_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let include = [dir.path().join("include")];
        assert_eq!(Version::read(dir.path(), &include), None);

        let header = include[0].join("torch/headeronly");
        fs::create_dir_all(&header).unwrap();
        let text = "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION \"2.13.4\"\n";
        fs::write(header.join("version.h"), text).unwrap();
        assert_eq!(
            Version::read(dir.path(), &include),
            Some(Version::new("2.13.4"))
        );

        let text = "__all__ = ['__version__']\n__version__ = '2.13.0+cu130'\ndebug = False\n";
        fs::write(dir.path().join("version.py"), text).unwrap();
        assert_eq!(
            Version::read(dir.path(), &include),
            Some(Version::new("2.13.0+cu130"))
        );

        fs::write(dir.path().join("build-version"), "2.9.1\n").unwrap();
        assert_eq!(
            Version::read(dir.path(), &include),
            Some(Version::new("2.9.1"))
        );
    }
}
