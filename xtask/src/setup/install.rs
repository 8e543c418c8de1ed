//! A folder that is filled aside and appears whole.
//!
//! Everything happens in `NAME.partial` beside the folder: downloads are kept there when a run
//! breaks, so that the next one goes on from them; what was unpacked is thrown away. The last step
//! renames the whole tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::python::Pinned;

use super::stamp;

/// A folder that set-up fills.
#[derive(Debug)]
pub(super) struct Installation {
    target: PathBuf,
    recipe: String,
}

impl Installation {
    /// An installation of `packages` into `target`. Another list of packages is another
    /// installation and replaces it.
    pub(super) fn new(target: PathBuf, packages: &[Pinned]) -> Self {
        let names: Vec<String> = packages
            .iter()
            .map(|package| format!("{}=={}", package.name, package.version))
            .collect();
        Self {
            target,
            recipe: names.join(" "),
        }
    }

    /// Whether an earlier run made exactly this and nothing was lost since.
    pub(super) fn is_complete(&self) -> bool {
        stamp::holds(&self.target, &self.recipe)
    }

    /// Takes what is there as if set-up had made it.
    pub(super) fn adopt(&self) -> Result<(), Failure> {
        stamp::write(&self.target, &self.recipe)
    }

    /// Fills the folder: `fill` gets a folder for downloads and an empty one to put files into.
    pub(super) fn make(
        &self,
        fill: impl FnOnce(&Path, &Path) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let partial = self.partial();
        let (downloads, tree, old) = (
            partial.join("downloads"),
            partial.join("tree"),
            partial.join("old"),
        );
        done(&partial, fs::create_dir_all(&downloads))?;
        done(&partial, fs::write(partial.join(".gitignore"), "*\n"))?;
        done(&tree, remove(&tree))?;
        done(&old, remove(&old))?;
        done(&tree, fs::create_dir(&tree))?;

        fill(&downloads, &tree)?;
        stamp::write(&tree, &self.recipe)?;

        if fs::symlink_metadata(&self.target).is_ok() {
            println!("replacing `{}`, which does not fit", self.target.display());
            done(&self.target, fs::rename(&self.target, &old))?;
        }
        done(&self.target, fs::rename(&tree, &self.target))?;
        done(&partial, remove(&partial))
    }

    fn partial(&self) -> PathBuf {
        let mut name = self.target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        self.target.with_file_name(name)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let is_folder = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if is_folder {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

fn done(path: &Path, result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| {
        Failure::because(format!("cannot prepare `{}`", path.display()), error)
            .hint("check the permissions and the free space of the disk")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::PackageFile;

    const PACKAGE: Pinned = Pinned {
        name: "p",
        version: "1",
        sha256: &[],
        file: PackageFile::Wheel,
    };

    #[test]
    fn it_appears_whole_or_not_at_all_and_goes_on_after_a_break() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("thing");
        let installation = Installation::new(target.clone(), &[PACKAGE]);
        assert!(!installation.is_complete());

        let broken = installation.make(|downloads, tree| {
            fs::write(downloads.join("kept"), "1").unwrap();
            fs::write(tree.join("half"), "1").unwrap();
            Err(Failure::new("broken"))
        });
        assert!(broken.is_err() && !target.exists() && !installation.is_complete());

        installation
            .make(|downloads, tree| {
                assert!(downloads.join("kept").exists());
                assert!(!tree.join("half").exists());
                fs::write(tree.join("whole"), "1").unwrap();
                Ok(())
            })
            .unwrap();
        assert!(installation.is_complete());
        assert!(!dir.path().join("thing.partial").exists());
    }

    #[test]
    fn what_does_not_fit_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("thing");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("old"), "").unwrap();
        let newer = Pinned {
            version: "2",
            ..PACKAGE
        };
        for package in [PACKAGE, newer] {
            let installation = Installation::new(target.clone(), &[package]);
            assert!(!installation.is_complete());
            installation
                .make(|_, tree| {
                    fs::write(tree.join(package.version), "").unwrap();
                    Ok(())
                })
                .unwrap();
            assert!(installation.is_complete());
        }
        assert!(target.join("2").exists());
        assert!(!target.join("1").exists() && !target.join("old").exists());
    }

    #[test]
    fn what_is_there_can_be_adopted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "12345").unwrap();
        let installation = Installation::new(dir.path().to_owned(), &[PACKAGE]);
        installation.adopt().unwrap();
        assert!(installation.is_complete());
        fs::write(dir.path().join("file"), "123").unwrap();
        assert!(!installation.is_complete());
    }
}
