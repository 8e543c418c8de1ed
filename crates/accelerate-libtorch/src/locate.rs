//! Where libtorch is.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{Error, Found};
use super::python;
use super::settings::Settings;
use super::shared_object::{CxxAbi, SharedObject};
use super::version::Version;

/// What led to a libtorch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The package `torch` of this Python interpreter, because `LIBTORCH_USE_PYTORCH` is set.
    Python(PathBuf),
    /// The folder in `LIBTORCH`, or one named by the caller.
    Folder,
    /// A system-wide installation under this prefix.
    System(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python(python) => {
                write!(
                    f,
                    "package `torch` of `{}`, by `LIBTORCH_USE_PYTORCH`",
                    python.display()
                )
            }
            Self::Folder => f.write_str("by `LIBTORCH`"),
            Self::System(_) => f.write_str("installed system-wide"),
        }
    }
}

/// A libtorch: where its parts are and what it says about itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Libtorch {
    /// What led to it.
    pub origin: Origin,
    /// Its folder.
    pub folder: PathBuf,
    /// The folders for the C++ compiler's `-I`.
    pub include_dirs: Vec<PathBuf>,
    /// The folder with the shared libraries.
    pub lib_dir: PathBuf,
    /// Whether it is built with CUDA, that is, brings `libtorch_cuda.so`.
    pub cuda: bool,
    /// Its version, where one of its files states it.
    pub version: Option<Version>,
    /// The C++ ABI of its libraries, where they are readable ELF files.
    pub abi: Option<CxxAbi>,
    pub(super) settings: Settings,
}

impl Libtorch {
    /// Finds the libtorch that a build in this environment would use, as `torch-sys` does.
    ///
    /// In this order: the Python package `torch` if `LIBTORCH_USE_PYTORCH` is set, the folder in
    /// `LIBTORCH` (with `LIBTORCH_INCLUDE` and `LIBTORCH_LIB`), `/usr/lib/libtorch.so`. What is
    /// found is not yet known to fit: see [`check`](Self::check).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::PythonFailed`] or [`Error::NoPythonTorch`].
    pub fn locate() -> Result<Self, Error> {
        Self::with_settings(Settings::from_env())
    }

    /// The libtorch in `folder`, whatever the environment says.
    ///
    /// # Errors
    /// None today: a folder that does not fit is told by [`check`](Self::check).
    pub fn at(folder: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with_settings(Settings::at(folder))
    }

    /// Finds the libtorch that `settings` lead to.
    ///
    /// # Errors
    /// As [`locate`](Self::locate).
    pub fn with_settings(settings: Settings) -> Result<Self, Error> {
        if settings.use_python {
            let folder = python::torch_folder(&settings.python)?;
            let origin = Origin::Python(settings.python.clone());
            return Ok(Self::new(
                origin,
                folder.clone(),
                &folder,
                &folder,
                settings,
            ));
        }
        if let Some(folder) = settings.folder.clone() {
            let include = settings
                .include_parent
                .clone()
                .unwrap_or_else(|| folder.clone());
            let lib = settings
                .lib_parent
                .clone()
                .unwrap_or_else(|| folder.clone());
            return Ok(Self::new(Origin::Folder, folder, &include, &lib, settings));
        }
        let prefix = settings.system_prefix.clone();
        if settings.target.os == "linux" && prefix.join("lib/libtorch.so").exists() {
            let include = settings
                .include_parent
                .clone()
                .unwrap_or_else(|| prefix.clone());
            let lib = settings
                .lib_parent
                .clone()
                .unwrap_or_else(|| prefix.clone());
            return Ok(Self::new(
                Origin::System(prefix.clone()),
                prefix,
                &include,
                &lib,
                settings,
            ));
        }
        Err(Error::NotFound)
    }

    fn new(
        origin: Origin,
        folder: PathBuf,
        include_parent: &Path,
        lib_parent: &Path,
        settings: Settings,
    ) -> Self {
        let include = include_parent.join("include");
        let include_dirs = vec![include.clone(), include.join("torch/csrc/api/include")];
        let lib_dir = lib_parent.join("lib");
        let core = lib_dir.join(settings.target.library_file("c10"));
        Self {
            origin,
            cuda: lib_dir
                .join(settings.target.library_file("torch_cuda"))
                .exists(),
            version: Version::read(&folder, &include_dirs),
            abi: SharedObject::open(&core)
                .and_then(|mut core| core.cxx_abi())
                .ok(),
            folder,
            include_dirs,
            lib_dir,
            settings,
        }
    }

    /// The folder that holds `nccl.h`, if this libtorch is built with CUDA and the header is there.
    ///
    /// Looked for beside the Python package (from `nvidia-nccl-cu13`), then under `CUDA_HOME`, then
    /// where distributions put it.
    pub fn nccl_include_dir(&self) -> Option<PathBuf> {
        let beside = self
            .folder
            .parent()
            .map(|packages| packages.join("nvidia/nccl/include"));
        let home = std::env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("include"));
        [beside, home, Some(PathBuf::from("/usr/include"))]
            .into_iter()
            .flatten()
            .filter(|_| self.cuda)
            .find(|dir| dir.join("nccl.h").exists())
    }

    /// The folder that holds `cuda_runtime_api.h`, found as [`nccl_include_dir`](Self::nccl_include_dir).
    pub fn cuda_include_dir(&self) -> Option<PathBuf> {
        let beside = self
            .folder
            .parent()
            .map(|packages| packages.join("nvidia/cu13/include"));
        let home = std::env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("include"));
        [beside, home, Some(PathBuf::from("/usr/local/cuda/include"))]
            .into_iter()
            .flatten()
            .filter(|_| self.cuda)
            .find(|dir| dir.join("cuda_runtime_api.h").exists())
    }

    /// What an error about this libtorch has to say.
    pub(super) fn found(&self) -> Box<Found> {
        Box::new(Found {
            folder: self.folder.clone(),
            origin: self.origin.clone(),
            version: self.version.clone(),
            abi: self.abi,
        })
    }
}
