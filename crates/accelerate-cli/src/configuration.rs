//! The settings in force: from flags, variables and the config file, in this order.

mod show;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use accelerate_plan::{
    cluster::ClusterError,
    config::{ConfigError, Value, default_config_path},
    env::{self, Environment},
    settings::{CPU, ConfigFile, Layer, Origin, Settings},
};
use indexmap::IndexMap;

pub(crate) use show::{ShowArgs, rows, settle_device, show};

use crate::report;

/// What flags, variables and the config file say, before the machine is asked.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// What the command line says.
    pub(crate) flags: Layer,
    /// What variables say.
    pub(crate) variables: Layer,
    /// The config file in use, and why it is this one.
    pub(crate) file: Option<(ConfigFile, Choice)>,
}

/// Why a config file is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Somebody named it.
    Named(Origin),
    /// It is the user's default file.
    Default,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(origin) => origin.fmt(f),
            Self::Default => f.write_str("the default one"),
        }
    }
}

/// Why the settings could not be found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    #[error("cannot read the settings")]
    Plan(#[from] accelerate_plan::Error),
    #[error("cannot use the config file ({choice})")]
    File { choice: Choice, source: ConfigError },
    #[error("cannot tell the place of this process")]
    Cluster(#[from] ClusterError),
}

impl accelerate_plan::Hint for ConfigurationError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.hint(),
            Self::File { source, .. } => source.hint(),
            Self::Cluster(error) => error.hint(),
        }
    }
}

impl Configuration {
    /// Reads variables and the config file: the one that was named by flag or variable, else the
    /// user's default file where it exists. `--cpu` leaves the default file out, as it does in the
    /// original.
    ///
    /// # Errors
    /// If a variable or the file cannot be understood, or a file that was named is not there.
    pub(crate) fn read(
        flags: &Layer,
        named: Option<&Path>,
        env: &Environment,
    ) -> Result<Self, ConfigurationError> {
        Ok(Self {
            flags: flags.clone(),
            variables: Layer::from_env(env)?,
            file: file(flags, named, env)?,
        })
    }

    /// The settings in force, with what was found out about the machine for the rest.
    pub(crate) fn settings(&self, detected: Layer) -> Settings {
        let file = self.file.as_ref().map(|(file, _)| file.layer.clone());
        let layers = [
            Some(self.flags.clone()),
            Some(self.variables.clone()),
            file,
            Some(detected),
        ];
        Settings::resolve(layers.into_iter().flatten())
    }

    /// Whether somebody named the file in use.
    pub(crate) fn file_is_named(&self) -> bool {
        matches!(self.file, Some((_, Choice::Named(_))))
    }

    /// The record of the file in use, in the order in which it is listed.
    pub(crate) fn record(&self) -> Option<IndexMap<String, Value>> {
        let (file, _) = self.file.as_ref()?;
        match file.updated() {
            Value::Map(record) => Some(record),
            _ => None,
        }
    }

    /// Says which file is in use and what in it should be written differently today.
    pub(crate) fn tell(&self) {
        let Some((file, choice)) = &self.file else {
            return;
        };
        let path = file.path.display();
        if *choice == Choice::Default {
            report::note(
                &format!("settings from the default config file `{path}`"),
                &[],
            );
        }
        for notice in &file.notices {
            report::note(&format!("{path}:{}: {}", notice.line, notice.text), &[]);
        }
    }
}

fn file(
    flags: &Layer,
    named: Option<&Path>,
    env: &Environment,
) -> Result<Option<(ConfigFile, Choice)>, ConfigurationError> {
    let found = match (named, env.get(&env::CONFIG_FILE)?) {
        (Some(path), _) => {
            let flag = Origin::Flag("--config_file".to_owned());
            Some((path.to_owned(), Choice::Named(flag)))
        }
        (None, Some(path)) => {
            let variable = Origin::Variable(env::CONFIG_FILE.name());
            Some((path.into(), Choice::Named(variable)))
        }
        (None, None) if flags.get(CPU.name()).is_some() => None,
        (None, None) => default_file(env)?.map(|path| (path, Choice::Default)),
    };
    let Some((path, choice)) = found else {
        return Ok(None);
    };
    match ConfigFile::read(path) {
        Ok(file) => Ok(Some((file, choice))),
        Err(source) => Err(ConfigurationError::File { choice, source }),
    }
}

/// The user's default file, where it exists.
fn default_file(env: &Environment) -> Result<Option<PathBuf>, ConfigurationError> {
    Ok(default_config_path(env)?.filter(|path| path.is_file()))
}
