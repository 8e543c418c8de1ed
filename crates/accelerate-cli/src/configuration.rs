//! The settings in force: from flags, variables and the config file, in this order.

mod show;

use std::path::{Path, PathBuf};

use accelerate_plan::{
    config::{ConfigError, Value, default_config_path},
    env::{self, Environment},
    settings::{CPU, ConfigFile, Layer, Origin, Settings},
};
use indexmap::IndexMap;

pub(crate) use show::{ShowArgs, rows, show, shown};

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

/// Why the settings could not be found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    #[error("cannot read the settings")]
    Plan(#[from] accelerate_plan::Error),
    #[error("cannot use the config file")]
    File(#[from] ConfigError),
}

impl accelerate_plan::Hint for ConfigurationError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.hint(),
            Self::File(error) => error.hint(),
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
    if let Some(path) = named {
        let choice = Choice::Named(Origin::Flag("--config_file".to_owned()));
        return Ok(Some((ConfigFile::read(path)?, choice)));
    }
    if let Some(path) = env.get(&env::CONFIG_FILE)? {
        let choice = Choice::Named(Origin::Variable(env::CONFIG_FILE.name()));
        return Ok(Some((ConfigFile::read(path)?, choice)));
    }
    if flags.get(CPU.name()).is_some() {
        return Ok(None);
    }
    match default_file(env)? {
        Some(path) => Ok(Some((ConfigFile::read(path)?, Choice::Default))),
        None => Ok(None),
    }
}

/// The user's default file, where it exists.
fn default_file(env: &Environment) -> Result<Option<PathBuf>, ConfigurationError> {
    Ok(default_config_path(env)?.filter(|path| path.is_file()))
}
