//! Whether a libtorch fits: version, ABI, libraries and headers, cheapest first.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{Error, MissingLibrary};
use super::loader::Loader;
use super::locate::{Libtorch, Origin};
use super::shared_object::{CxxAbi, SharedObject};
use super::version::Version;

/// The libraries every libtorch has. `torch` may be a linker script.
const PARTS: [&str; 3] = ["c10", "torch_cpu", "torch"];

/// Parts that only some builds have, whose own needs are then checked too.
const CUDA_PARTS: [&str; 2] = ["c10_cuda", "torch_cuda"];

/// Headers that stand for the two sets we compile against: the C++ API and the communication part.
const HEADERS: [&str; 2] = [
    "torch/torch.h",
    "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp",
];

impl Libtorch {
    /// Checks that this libtorch can be compiled against, linked and loaded, and gives it back.
    ///
    /// Takes some milliseconds: of the libraries only what the loader reads first is read.
    ///
    /// # Errors
    /// Every other variant than the three that [`locate`](Self::locate) returns.
    pub fn check(self) -> Result<Self, Error> {
        self.check_folder()?;
        if self
            .version
            .as_ref()
            .is_some_and(|version| !version.is_needed())
        {
            return Err(Error::WrongVersion {
                found: self.found(),
            });
        }
        self.check_abi()?;
        self.check_parts()?;
        if self.version.is_none() {
            return Err(Error::WrongVersion {
                found: self.found(),
            });
        }
        if self.settings.target.has_elf() {
            self.check_loadable()?;
        }
        self.check_headers()?;
        Ok(self)
    }

    fn check_folder(&self) -> Result<(), Error> {
        if self.origin != Origin::Folder {
            return Ok(());
        }
        let is_wheel = self
            .folder
            .extension()
            .is_some_and(|extension| extension == "whl");
        if is_wheel && self.folder.is_file() {
            return Err(Error::PythonWheel {
                found: self.found(),
                package: None,
            });
        }
        if !self.folder.is_dir() {
            return Err(Error::NoFolder {
                found: self.found(),
            });
        }
        let package = self.folder.join("torch");
        if !self.lib_dir.is_dir() && package.join("version.py").is_file() {
            let version = Version::read(&package, &[]);
            let mut found = self.found();
            found.version = version;
            return Err(Error::PythonWheel {
                found,
                package: Some(package),
            });
        }
        Ok(())
    }

    fn check_abi(&self) -> Result<(), Error> {
        let asked = self.settings.cxx11_abi.as_deref();
        let compiled = match asked {
            Some(value) if value != "1" && self.settings.target.has_elf() => CxxAbi::PreCxx11,
            _ => CxxAbi::Cxx11,
        };
        if compiled != CxxAbi::Cxx11 || self.abi == Some(CxxAbi::PreCxx11) {
            return Err(Error::WrongAbi {
                found: self.found(),
                compiled,
            });
        }
        Ok(())
    }

    fn check_parts(&self) -> Result<(), Error> {
        let missing: Vec<MissingLibrary> = PARTS
            .iter()
            .map(|part| self.settings.target.library_file(part))
            .filter(|name| !self.lib_dir.join(name).exists())
            .map(|name| MissingLibrary {
                name,
                needed_by: None,
            })
            .collect();
        self.complete(missing)
    }

    /// Checks that each part is a whole library and that the loader finds what it needs.
    fn check_loadable(&self) -> Result<(), Error> {
        let loader = Loader::new(&self.settings.library_path);
        let mut missing: Vec<MissingLibrary> = Vec::new();
        for part in PARTS.iter().chain(&CUDA_PARTS) {
            let name = self.settings.target.library_file(part);
            let path = self.lib_dir.join(&name);
            if !path.exists() || is_linker_script(&path) {
                continue;
            }
            for library in self.unmet_needs(&loader, &name, &path)? {
                if !missing.iter().any(|known| known.name == library) {
                    missing.push(MissingLibrary {
                        name: library,
                        needed_by: Some(name.clone()),
                    });
                }
            }
        }
        self.complete(missing)
    }

    fn unmet_needs(
        &self,
        loader: &Loader<'_>,
        name: &str,
        path: &Path,
    ) -> Result<Vec<String>, Error> {
        let damaged = |source| Error::DamagedLibrary {
            found: self.found(),
            path: path.to_owned(),
            source,
        };
        let mut library = SharedObject::open(path).map_err(damaged)?;
        let target = &self.settings.target.arch;
        if let Some(built_for) = library.arch().filter(|arch| arch != target) {
            let target = target.clone();
            return Err(Error::WrongProcessor {
                found: self.found(),
                built_for,
                target,
            });
        }
        let search_path = library.search_path().map_err(damaged)?;
        let needed = library.needed().map_err(damaged)?;
        Ok(needed
            .into_iter()
            .filter(|need| need != name && !loader.finds(need, &self.lib_dir, &search_path))
            .collect())
    }

    fn complete(&self, missing: Vec<MissingLibrary>) -> Result<(), Error> {
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::MissingLibraries {
            found: self.found(),
            missing,
        })
    }

    fn check_headers(&self) -> Result<(), Error> {
        let exists = |header: &str| {
            self.include_dirs
                .iter()
                .map(|dir| dir.join(header))
                .any(|path: PathBuf| path.exists())
        };
        match HEADERS.into_iter().find(|header| !exists(header)) {
            None => Ok(()),
            Some(header) => Err(Error::MissingHeader {
                found: self.found(),
                header,
                include_dirs: self.include_dirs.clone(),
            }),
        }
    }
}

/// Whether a `.so` is the text form that only names other libraries.
fn is_linker_script(path: &Path) -> bool {
    let small = fs::metadata(path).is_ok_and(|metadata| metadata.len() < 4096);
    small
        && fs::read_to_string(path)
            .is_ok_and(|text| text.contains("INPUT") || text.contains("GROUP"))
}
