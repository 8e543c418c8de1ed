//! Why a config file was not made, and what to do about it.

use std::{io, path::PathBuf, process::ExitCode};

use accelerate_plan::{Hint, config::ConfigError};
use inquire::InquireError;

use crate::configuration::ConfigurationError;

pub(crate) type Result<T, E = ConfigCommandError> = std::result::Result<T, E>;

/// An error of `config` and its subcommands, and of `to-fsdp2`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigCommandError {
    #[error("the input ended before the question `{question}` was answered: expected {expected}")]
    EndOfInput { question: String, expected: String },

    #[error("no answer to the question `{question}`: expected {expected}, found `{found}`")]
    NotUnderstood {
        question: String,
        expected: String,
        found: String,
    },

    /// Escape or Ctrl-C at a terminal.
    #[error("the questions were cancelled")]
    Cancelled,

    #[error("cannot ask the question `{question}` on this terminal")]
    Terminal {
        question: String,
        source: InquireError,
    },

    #[error("cannot read the answers")]
    Input { source: io::Error },

    #[error("`multi-GPU` needs more than one process: expected at least 2, found 1 on one machine")]
    OneGpu,

    #[error("{strategy} does not run on Neuron devices")]
    NotOnNeuron { strategy: &'static str },

    #[error("no place for the config file: neither `HF_HOME` nor `HOME` is set")]
    NoHome,

    #[error("no place for the config file")]
    Environment(#[from] accelerate_plan::Error),

    #[error("no folder `{}` for the config file", folder.display())]
    FolderMissing { folder: PathBuf },

    #[error("cannot make the folder `{}`", folder.display())]
    Folder { folder: PathBuf, source: io::Error },

    #[error("cannot write the config file")]
    Write { source: accelerate_formats::Error },

    #[error(transparent)]
    File(Box<ConfigError>),

    #[error(transparent)]
    Settings(#[from] ConfigurationError),

    #[error("expected `--output_file` or `--overwrite`, found neither")]
    NoTarget,

    #[error("`{}` exists already", path.display())]
    OutputExists { path: PathBuf },
}

impl From<ConfigError> for ConfigCommandError {
    fn from(error: ConfigError) -> Self {
        Self::File(Box::new(error))
    }
}

impl ConfigCommandError {
    /// 1 for what the user can change, 2 for a wrong command line.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NoTarget => 2,
            _ => 1,
        })
    }
}

impl Hint for ConfigCommandError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::EndOfInput { .. } | Self::NotUnderstood { .. } => {
                "give one line per question; an empty line takes the default, and a menu takes \
                 the number of an option, counted from 0"
            }
            Self::Terminal { .. } => "set `TERM=dumb` to get the questions as plain lines",
            Self::OneGpu => {
                "choose `No distributed training` for one GPU, or give the number of all GPUs"
            }
            Self::NotOnNeuron { .. } => "answer `no` to that question",
            Self::FolderMissing { folder } => {
                return Some(format!("run `mkdir -p {}` first", folder.display()));
            }
            Self::NoHome => "name a file with `--config_file`",
            Self::Settings(error) => return error.hint(),
            Self::File(error) => match **error {
                ConfigError::Missing { .. } => "run `accelerate config` to make one",
                _ => return error.hint(),
            },
            Self::Environment(error) => return error.hint(),
            Self::NoTarget => {
                "`--output_file` names a new file, `--overwrite` changes the file itself"
            }
            Self::OutputExists { .. } => "name another file, or add `--overwrite`",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
