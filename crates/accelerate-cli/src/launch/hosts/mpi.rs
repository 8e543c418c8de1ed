//! Which MPI is installed.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{HostsError, Machine, Result};

/// Whose `mpirun` it is; they take different flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    OpenMpi,
    IntelMpi,
    Mvapich,
    /// MPICH, and others with its process manager Hydra: MVAPICH too may show only that name.
    Mpich,
    /// It does not say; it is taken to be like MPICH.
    Unknown,
}

impl Flavour {
    fn of_version(text: &str) -> Self {
        let names = [
            ("Open MPI", Self::OpenMpi),
            ("OpenRTE", Self::OpenMpi),
            ("Intel(R) MPI", Self::IntelMpi),
            ("MVAPICH", Self::Mvapich),
            ("HYDRA", Self::Mpich),
            ("MPICH", Self::Mpich),
        ];
        names
            .into_iter()
            .find(|(name, _)| text.contains(name))
            .map_or(Self::Unknown, |(_, flavour)| flavour)
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::IntelMpi => "Intel MPI",
            Self::Mvapich => "MVAPICH",
            Self::Mpich => "MPICH",
            Self::Unknown => "an unknown MPI",
        })
    }
}

/// An installed MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mpi {
    pub(crate) program: PathBuf,
    pub(crate) flavour: Flavour,
}

impl Mpi {
    /// The first of `mpirun` and `mpiexec` on the search path.
    ///
    /// # Errors
    /// [`HostsError::MpiMissing`], and [`HostsError::VersionUnknown`] if it does not run.
    pub(super) fn find(machine: &Machine<'_>) -> Result<Self> {
        let program = machine
            .find(&["mpirun", "mpiexec"])
            .ok_or(HostsError::MpiMissing)?;
        let flavour = Flavour::of_version(&version(&program)?);
        Ok(Self { program, flavour })
    }
}

fn version(program: &Path) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| HostsError::VersionUnknown {
            program: program.to_owned(),
            source,
        })?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mpi_is_known_by_its_own_words() {
        for (text, flavour) in [
            (
                "mpirun (Open MPI) 4.1.4\n\nReport bugs to",
                Flavour::OpenMpi,
            ),
            ("mpirun (OpenRTE) 4.0.0", Flavour::OpenMpi),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.13",
                Flavour::IntelMpi,
            ),
            ("HYDRA build details:\n    Version: 4.0.2", Flavour::Mpich),
            ("MVAPICH2 Version: 2.3.7", Flavour::Mvapich),
            ("something else", Flavour::Unknown),
        ] {
            assert_eq!(Flavour::of_version(text), flavour, "{text}");
        }
    }
}
