//! What can be wrong with a libtorch, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::locate::Origin;
use super::shared_object::CxxAbi;
use super::version::{NEEDED_VERSION, Version};

/// What was found, for the report of an error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found {
    /// The folder of the libtorch.
    pub folder: PathBuf,
    /// What led there.
    pub origin: Origin,
    /// Its version, where stated.
    pub version: Option<Version>,
    /// Its C++ ABI, where its libraries could be read.
    pub abi: Option<CxxAbi>,
}

/// A library that the loader would not find.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingLibrary {
    /// Its file name, such as `libcudart.so.13`.
    pub name: String,
    /// The library that needs it; none if it is a part of libtorch itself.
    pub needed_by: Option<String>,
}

/// Why the libtorch of this environment cannot be used.
///
/// `Debug` shows the whole report, because that is what a failed build script prints.
#[non_exhaustive]
pub enum Error {
    /// No variable leads to a libtorch and none is installed.
    NotFound,
    /// `LIBTORCH_USE_PYTORCH` is set and the interpreter does not run.
    PythonFailed {
        /// The interpreter.
        python: PathBuf,
        /// Why it does not run.
        source: io::Error,
    },
    /// `LIBTORCH_USE_PYTORCH` is set and the interpreter has no package `torch`.
    NoPythonTorch {
        /// The interpreter.
        python: PathBuf,
    },
    /// The folder does not exist.
    NoFolder {
        /// What was found.
        found: Box<Found>,
    },
    /// The path is a Python wheel, or a folder that holds the Python package `torch` among others.
    PythonWheel {
        /// What was found.
        found: Box<Found>,
        /// The unpacked package inside that folder, if it is unpacked.
        package: Option<PathBuf>,
    },
    /// The version is another one, or no file states it.
    WrongVersion {
        /// What was found.
        found: Box<Found>,
    },
    /// The libraries, or what `LIBTORCH_CXX11_ABI` asks for, follow the old C++ ABI.
    WrongAbi {
        /// What was found.
        found: Box<Found>,
        /// The ABI that the bindings would be compiled with.
        compiled: CxxAbi,
    },
    /// Libraries are missing.
    MissingLibraries {
        /// What was found.
        found: Box<Found>,
        /// All that are missing.
        missing: Vec<MissingLibrary>,
    },
    /// A library cannot be read, is cut off, or is no library.
    DamagedLibrary {
        /// What was found.
        found: Box<Found>,
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The libraries are for another kind of processor.
    WrongProcessor {
        /// What was found.
        found: Box<Found>,
        /// The processor that the libraries are for.
        built_for: &'static str,
        /// The processor that is compiled for.
        target: String,
    },
    /// A C++ header is missing.
    MissingHeader {
        /// What was found.
        found: Box<Found>,
        /// The header, relative to an include folder.
        header: &'static str,
        /// Where it was looked for.
        include_dirs: Vec<PathBuf>,
    },
}

impl Error {
    /// What to do next, as one sentence.
    pub fn hint(&self) -> String {
        let elsewhere = "elsewhere `pip install torch==2.13.0` and set `LIBTORCH_USE_PYTORCH=1`";
        match self {
            Self::NotFound => {
                format!("in a checkout of Accelerate run `cargo xtask setup`; {elsewhere}")
            }
            Self::PythonFailed { .. } => {
                "unset `LIBTORCH_USE_PYTORCH`, or put the interpreter on `PATH`".to_owned()
            }
            Self::NoPythonTorch { python } => format!(
                "run `{} -m pip install torch==2.13.0`, or unset `LIBTORCH_USE_PYTORCH`",
                python.display()
            ),
            Self::PythonWheel {
                package: Some(package),
                ..
            } => format!(
                "set `LIBTORCH` to `{}`, or unset it and run `cargo xtask setup`",
                package.display()
            ),
            Self::PythonWheel { package: None, .. } => {
                format!("unset `LIBTORCH` and run `cargo xtask setup`; {elsewhere}")
            }
            Self::WrongAbi {
                found,
                compiled: CxxAbi::PreCxx11,
            } if found.abi != Some(CxxAbi::PreCxx11) => "unset `LIBTORCH_CXX11_ABI`".to_owned(),
            _ => match self.found().map(|found| &found.origin) {
                Some(Origin::Python(python)) => format!(
                    "run `{} -m pip install --force-reinstall torch==2.13.0`, or unset `LIBTORCH_USE_PYTORCH`",
                    python.display()
                ),
                Some(Origin::System(_)) => {
                    format!("in a checkout of Accelerate run `cargo xtask setup`; {elsewhere}")
                }
                _ => format!(
                    "in a checkout of Accelerate unset `LIBTORCH` and run `cargo xtask setup`; {elsewhere}"
                ),
            },
        }
    }

    /// The libtorch that the error is about, if there is one.
    pub fn found(&self) -> Option<&Found> {
        match self {
            Self::NotFound | Self::PythonFailed { .. } | Self::NoPythonTorch { .. } => None,
            Self::NoFolder { found }
            | Self::PythonWheel { found, .. }
            | Self::WrongVersion { found }
            | Self::WrongAbi { found, .. }
            | Self::MissingLibraries { found, .. }
            | Self::DamagedLibrary { found, .. }
            | Self::WrongProcessor { found, .. }
            | Self::MissingHeader { found, .. } => Some(found),
        }
    }

    /// What was found against what is needed, a line each for path, version and ABI; empty where
    /// nothing was found.
    pub fn findings(&self) -> String {
        let Some(found) = self.found() else {
            return String::new();
        };
        let unknown = || "unknown".to_owned();
        let version = found
            .version
            .as_ref()
            .map_or_else(unknown, Version::to_string);
        let abi = found.abi.map_or_else(unknown, |abi| abi.to_string());
        format!(
            "  path:    {} ({})\n  version: found {version}, needed {NEEDED_VERSION}\n  ABI:     found {abi}, needed {}\n",
            found.folder.display(),
            found.origin,
            CxxAbi::Cxx11
        )
    }

    /// The whole report: the error, what was found against what is needed, and the hint.
    pub fn report(&self) -> String {
        format!("{self}\n{}hint: {}\n", self.findings(), self.hint())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => {
                f.write_str("no libtorch: `LIBTORCH` is not set and `/usr/lib` has none")
            }
            Self::PythonFailed { python, source } => {
                write!(
                    f,
                    "cannot run `{}` to find its libtorch: {source}",
                    python.display()
                )
            }
            Self::NoPythonTorch { python } => {
                write!(
                    f,
                    "`LIBTORCH_USE_PYTORCH` is set, but `{}` has no package `torch`",
                    python.display()
                )
            }
            Self::NoFolder { found } => {
                write!(
                    f,
                    "no libtorch in `{}`: there is no such folder",
                    found.folder.display()
                )
            }
            Self::PythonWheel { found, .. } => write!(
                f,
                "`{}` is a Python wheel or a folder of Python packages: expected a libtorch folder with `lib` and `include`",
                found.folder.display()
            ),
            Self::WrongVersion { found } => match &found.version {
                Some(version) => write!(
                    f,
                    "libtorch in `{}` has the wrong version: expected `{NEEDED_VERSION}`, found `{version}`",
                    found.folder.display()
                ),
                None => write!(
                    f,
                    "libtorch in `{}` states no version: expected `{NEEDED_VERSION}` in `build-version`, `version.py` or `torch/headeronly/version.h`",
                    found.folder.display()
                ),
            },
            Self::WrongAbi { found, compiled } => match found.abi {
                Some(CxxAbi::PreCxx11) => write!(
                    f,
                    "libtorch in `{}` has the wrong C++ ABI: expected {}, found {}",
                    found.folder.display(),
                    CxxAbi::Cxx11,
                    CxxAbi::PreCxx11
                ),
                _ => write!(
                    f,
                    "`LIBTORCH_CXX11_ABI` asks for the wrong C++ ABI: expected {}, found {compiled}",
                    CxxAbi::Cxx11
                ),
            },
            Self::MissingLibraries { found, missing } => {
                write!(
                    f,
                    "libtorch in `{}` is not complete: missing ",
                    found.folder.display()
                )?;
                for (index, library) in missing.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}`{}`", library.name)?;
                    if let Some(user) = &library.needed_by {
                        write!(f, " (needed by `{user}`)")?;
                    }
                }
                Ok(())
            }
            Self::DamagedLibrary { path, source, .. } => {
                write!(f, "cannot use the library `{}`: {source}", path.display())
            }
            Self::WrongProcessor {
                found,
                built_for,
                target,
            } => write!(
                f,
                "libtorch in `{}` is for another processor: expected `{target}`, found `{built_for}`",
                found.folder.display()
            ),
            Self::MissingHeader {
                found,
                header,
                include_dirs,
            } => {
                let dirs: Vec<String> = include_dirs
                    .iter()
                    .map(|dir| format!("`{}`", dir.display()))
                    .collect();
                write!(
                    f,
                    "libtorch in `{}` is not complete: header `{header}` is not in {}",
                    found.folder.display(),
                    dirs.join(" or ")
                )
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::PythonFailed { source, .. } | Self::DamagedLibrary { source, .. } => Some(source),
            _ => None,
        }
    }
}
