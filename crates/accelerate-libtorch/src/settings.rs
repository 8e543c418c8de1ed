//! What decides where libtorch is: the environment, read in one place.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The variables that say where libtorch is; a build script reruns when one changes.
///
/// Not `LD_LIBRARY_PATH`: `cargo run` changes it for the cargo inside it.
pub(super) const VARIABLES: [&str; 5] = [
    "LIBTORCH_USE_PYTORCH",
    "LIBTORCH",
    "LIBTORCH_INCLUDE",
    "LIBTORCH_LIB",
    "LIBTORCH_CXX11_ABI",
];

/// The machine that is compiled for, in cargo's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `linux`, `macos` or `windows`.
    pub os: String,
    /// `x86_64` or `aarch64`.
    pub arch: String,
}

impl Target {
    /// The target of the running build script; elsewhere this machine.
    pub fn from_env() -> Self {
        Self {
            os: env::var("CARGO_CFG_TARGET_OS").unwrap_or_else(|_| env::consts::OS.to_owned()),
            arch: env::var("CARGO_CFG_TARGET_ARCH")
                .unwrap_or_else(|_| env::consts::ARCH.to_owned()),
        }
    }

    /// The file name of a shared library here, `libc10.so` for `c10`.
    pub(super) fn library_file(&self, name: &str) -> String {
        match self.os.as_str() {
            "macos" => format!("lib{name}.dylib"),
            "windows" => format!("{name}.dll"),
            _ => format!("lib{name}.so"),
        }
    }

    /// Whether shared libraries here are ELF files, which is what the deep checks read.
    pub(super) fn has_elf(&self) -> bool {
        !matches!(self.os.as_str(), "macos" | "windows")
    }
}

/// Everything outside this crate that decides which libtorch is used.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Take the libtorch of the Python package `torch` (`LIBTORCH_USE_PYTORCH` set to anything).
    pub use_python: bool,
    /// The interpreter asked for that package: `python` in a virtual environment, else `python3`.
    pub python: PathBuf,
    /// The folder of a libtorch (`LIBTORCH`).
    pub folder: Option<PathBuf>,
    /// The folder whose `include` is used instead of the libtorch folder's (`LIBTORCH_INCLUDE`).
    pub include_parent: Option<PathBuf>,
    /// The folder whose `lib` is used instead of the libtorch folder's (`LIBTORCH_LIB`).
    pub lib_parent: Option<PathBuf>,
    /// The ABI that `torch-sys` is told to compile with (`LIBTORCH_CXX11_ABI`); `1` if unset.
    pub cxx11_abi: Option<OsString>,
    /// Folders that the loader searches first (`LD_LIBRARY_PATH`).
    pub library_path: Vec<PathBuf>,
    /// Where a system-wide libtorch would be: its `lib` and `include`.
    pub system_prefix: PathBuf,
    /// The machine that is compiled for.
    pub target: Target,
}

impl Settings {
    /// What the environment of this process says.
    pub fn from_env() -> Self {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let python = if env::var_os("VIRTUAL_ENV").is_some() {
            "python"
        } else {
            "python3"
        };
        Self {
            use_python: env::var_os("LIBTORCH_USE_PYTORCH").is_some(),
            python: PathBuf::from(python),
            folder: path("LIBTORCH"),
            include_parent: path("LIBTORCH_INCLUDE"),
            lib_parent: path("LIBTORCH_LIB"),
            cxx11_abi: env::var_os("LIBTORCH_CXX11_ABI"),
            library_path: env::var_os("LD_LIBRARY_PATH")
                .map(|value| env::split_paths(&value).collect())
                .unwrap_or_default(),
            system_prefix: PathBuf::from("/usr"),
            target: Target::from_env(),
        }
    }

    /// One libtorch folder, whatever the environment says.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            use_python: false,
            python: PathBuf::from("python3"),
            folder: Some(folder.into()),
            include_parent: None,
            lib_parent: None,
            cxx11_abi: None,
            library_path: Vec::new(),
            system_prefix: PathBuf::from("/usr"),
            target: Target::from_env(),
        }
    }
}
