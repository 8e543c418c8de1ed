//! The libtorch that our library links.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use accelerate_plan::env::{Environment, LIBTORCH};

/// A folder with libtorch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Libtorch {
    pub(super) version: String,
    pub(super) folder: PathBuf,
}

impl Libtorch {
    /// The one that `LIBTORCH` names, or else the folder `.libtorch` here or in a folder around.
    pub(super) fn find(environment: &Environment) -> Option<Self> {
        // A report must not fail because of what it reports.
        if let Some(named) = environment.get(&LIBTORCH).ok().flatten() {
            return Self::at(Path::new(&named));
        }
        let here = env::current_dir().ok()?;
        here.ancestors()
            .find_map(|folder| Self::at(&folder.join(".libtorch")))
    }

    fn at(folder: &Path) -> Option<Self> {
        let version = fs::read_to_string(folder.join("build-version")).ok()?;
        Some(Self {
            version: version.trim().to_owned(),
            folder: folder.to_owned(),
        })
    }
}
