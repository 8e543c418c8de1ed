//! What building a command has to know about this machine.

use std::{
    io,
    path::{Path, PathBuf},
};

use accelerate_plan::{
    config,
    env::{Environment, OMPI_ALLOW_ROOT, OMPI_CONFIRM_ROOT},
};

use super::{HostsError, Result};
use crate::launch::find_on_path;

/// The machine on which the user typed the command.
#[derive(Debug, Clone)]
pub(crate) struct Machine<'a> {
    /// Variables of the launcher.
    pub(crate) environment: &'a Environment,
    /// Working folder; the processes work in the folder of the same name on their machines.
    pub(crate) folder: PathBuf,
    /// The user's own folder.
    pub(crate) home: Option<PathBuf>,
    /// Our own executable.
    pub(crate) executable: PathBuf,
    /// Whether the user is root.
    pub(crate) is_root: bool,
    /// Whether there is a network interface of the name `eth0`.
    pub(crate) has_eth0: bool,
}

impl<'a> Machine<'a> {
    /// This machine, as it is now.
    ///
    /// # Errors
    /// If the working folder or our own file is gone.
    pub(crate) fn here(environment: &'a Environment) -> io::Result<Self> {
        Ok(Self {
            environment,
            folder: std::env::current_dir()?,
            home: config::expand_home("~", environment).ok().flatten(),
            executable: std::env::current_exe()?,
            is_root: rustix::process::geteuid().is_root(),
            has_eth0: Path::new("/sys/class/net/eth0").exists(),
        })
    }

    /// The first file on the search path with one of these names; an earlier name comes first.
    pub(super) fn find(&self, names: &[&str]) -> Option<PathBuf> {
        find_on_path(self.environment, names)
    }

    /// Open MPI refuses to serve root unless two variables allow it. We leave that choice where it
    /// is and only say so before anything starts.
    pub(super) fn check_root(&self, program: &Path) -> Result<()> {
        let is_set = |variable| {
            let value = self.environment.get_or_default(variable)?;
            Ok::<_, HostsError>(value == Some(true))
        };
        match self.is_root && !(is_set(&OMPI_ALLOW_ROOT)? && is_set(&OMPI_CONFIRM_ROOT)?) {
            true => Err(HostsError::RootRefused {
                program: program.to_owned(),
            }),
            false => Ok(()),
        }
    }
}
