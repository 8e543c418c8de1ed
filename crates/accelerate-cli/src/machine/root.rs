//! Where the files of the kernel are: `/`, or a folder that stands for it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder below which everything is looked up.
///
/// What cannot be read is not there: these files differ from system to system, and a container may
/// hide any of them.
#[derive(Debug, Clone)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The machine itself.
    pub(crate) fn machine() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A folder that looks like a machine.
    #[cfg(test)]
    pub(crate) fn pretend(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Where a path of the machine, with or without its leading `/`, really is.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The text of a file, without white space around it.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The names in a folder, in order; none if there is no such folder.
    pub(crate) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut names: Vec<_> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    /// The numbers after `prefix` of all names in a folder that are nothing but both, in order.
    pub(crate) fn numbers(&self, folder: impl AsRef<Path>, prefix: &str) -> Vec<usize> {
        let mut numbers: Vec<usize> = self
            .names(folder)
            .iter()
            .filter_map(|name| name.strip_prefix(prefix))
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .filter_map(|digits| digits.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

/// A folder that looks like a machine, for tests.
#[cfg(test)]
pub(crate) mod pretend {
    use super::*;

    pub(crate) struct Pretend {
        folder: tempfile::TempDir,
    }

    impl Pretend {
        /// A machine with these files.
        pub(crate) fn with(files: &[(&str, &str)]) -> Self {
            let machine = Self {
                folder: tempfile::tempdir().unwrap(),
            };
            for (path, text) in files {
                machine.add(path, text);
            }
            machine
        }

        pub(crate) fn add(&self, path: &str, text: &str) {
            let path = self.root().path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(crate) fn root(&self) -> Root {
            Root::pretend(self.folder.path())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pretend::Pretend;

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let machine = Pretend::with(&[
            ("dev/nvidia10", ""),
            ("dev/nvidia2", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
        ]);
        assert_eq!(machine.root().numbers("/dev", "nvidia"), [2, 10]);
        assert!(machine.root().numbers("/sys", "cpu").is_empty());
    }

    #[test]
    fn a_leading_slash_stays_below_the_root() {
        let machine = Pretend::with(&[("proc/version", " Linux \n")]);
        assert_eq!(
            machine.root().text("/proc/version").as_deref(),
            Some("Linux")
        );
        assert_eq!(machine.root().text("/proc/uptime"), None);
    }
}
