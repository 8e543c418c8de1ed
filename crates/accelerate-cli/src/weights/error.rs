//! Why a command on weights could not do its work, and what to do.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use accelerate_formats::{DistributedFault, Error as FormatsError, PickleFault, TorchFault};
use accelerate_plan::Hint;

pub(crate) type Result<T, E = WeightsError> = std::result::Result<T, E>;

/// Why a command on weights could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WeightsError {
    #[error(transparent)]
    Formats(#[from] FormatsError),

    /// There is more than tensors in a checkpoint, and the format to write holds only these.
    #[error("{error}")]
    NotOnlyTensors {
        error: Box<FormatsError>,
        /// What to do about it.
        advice: &'static str,
    },

    #[error("no sharded checkpoint in `{}`: it holds neither `.metadata` nor files `*_optim_states.pt`", path.display())]
    NotSharded {
        path: PathBuf,
        /// Folders in it that hold one.
        inner: Vec<PathBuf>,
        /// Whether it holds whole weights instead.
        is_whole: bool,
    },

    #[error("cannot make `{}`", path.display())]
    MakeFolder { path: PathBuf, source: io::Error },

    #[error("expected a folder at `{}`, found a file", path.display())]
    OutputIsFile { path: PathBuf },

    #[error("`{}` lies within `{}`, which `--remove_checkpoint_dir` would delete", output.display(), input.display())]
    OutputInsideInput { output: PathBuf, input: PathBuf },

    #[error("`{}` is a link, and `--remove_checkpoint_dir` deletes folders", path.display())]
    InputIsLink { path: PathBuf },

    #[error("wrote `{}`, but cannot remove `{}`", output.display(), input.display())]
    Remove {
        output: PathBuf,
        input: PathBuf,
        source: io::Error,
    },

    #[error("`{}` holds the source, files of which would be replaced or deleted", output.display())]
    OutputIsSource { output: PathBuf },

    #[error("`{}` names one file: {problem}", path.display())]
    OneFile {
        path: PathBuf,
        problem: &'static str,
    },

    #[error("nothing to inspect in `{}`", path.display())]
    NothingToInspect { path: PathBuf },

    #[error("`{pattern}` is no pattern for names")]
    Pattern { pattern: String },

    #[error("no tensor has a name that fits {}", listed(patterns))]
    NothingFits { patterns: Vec<String> },

    #[error("cannot write the answer")]
    Output(#[source] io::Error),
}

impl WeightsError {
    /// 1 for what the user can change, 2 for a wrong command line, 70 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::OutputInsideInput { .. }
            | Self::InputIsLink { .. }
            | Self::OutputIsSource { .. }
            | Self::Pattern { .. }
            | Self::NothingFits { .. }
            | Self::OneFile { .. } => 2,
            Self::Output(_) => 70,
            _ => 1,
        })
    }
}

impl Hint for WeightsError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Formats(error) => return hint_of(error),
            Self::NotOnlyTensors { advice, .. } => *advice,
            Self::NotSharded { inner, .. } if !inner.is_empty() => {
                return Some(format!("give a folder in it: {}", listed(inner)));
            }
            Self::NotSharded { is_whole: true, .. } => {
                "these weights are in one piece already; `accelerate convert` puts them into other \
                 files"
            }
            Self::NotSharded { .. } => {
                "give the folder that holds `.metadata`, such as `pytorch_model_fsdp_0`, or a folder \
                 of DeepSpeed with the file `latest`"
            }
            Self::MakeFolder { .. } => "make the folder above it first, or correct the path",
            Self::OutputIsFile { .. } => {
                "name a folder: it gets the weights under their usual names"
            }
            Self::OutputInsideInput { .. } | Self::OutputIsSource { .. } => {
                "write into another folder"
            }
            Self::InputIsLink { .. } => "give the folder that it leads to",
            Self::OneFile { .. } => "name a folder instead",
            Self::NothingToInspect { .. } => {
                "known are safetensors files, files of `torch.save`, indexes, and folders of these, \
                 of `torch.distributed.checkpoint`, of DeepSpeed, of offloaded weights and of \
                 `save_state`"
            }
            Self::NothingFits { .. } => {
                "patterns fit whole names: `*` stands for any text, `?` for one character; \
                 `accelerate inspect` shows all names"
            }
            Self::Pattern { .. } => "`*` stands for any text, `?` for one character",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

fn hint_of(error: &FormatsError) -> Option<String> {
    match error {
        FormatsError::Cast { .. } => Some("leave out `--dtype`".to_owned()),
        FormatsError::Occupied { .. } => Some("name a folder that is absent or empty".to_owned()),
        FormatsError::Fixed { .. } => Some("name a new folder inside it".to_owned()),
        FormatsError::NoPart { .. } => {
            Some("files of `torch.save` and distributed checkpoints have parts".to_owned())
        }
        FormatsError::Torch { fault, .. } => match fault.as_ref() {
            TorchFault::Pickle {
                source: PickleFault::Refused { .. },
            } => Some(
                "if you trust the file, load it in Python and save a plain state dict".to_owned(),
            ),
            TorchFault::NotAStateDict { .. } => Some(
                "`--part KEY` takes the tensors under one key; `accelerate inspect` shows all keys"
                    .to_owned(),
            ),
            _ => None,
        },
        FormatsError::Distributed { folder, fault } => match fault.as_ref() {
            DistributedFault::NoMetadata { inner } if !inner.is_empty() => {
                let inner: Vec<PathBuf> = inner.iter().map(|name| folder.join(name)).collect();
                Some(format!("give a folder in it: {}", listed(&inner)))
            }
            _ => None,
        },
        _ => None,
    }
}

fn listed(paths: &[impl AsRef<Path>]) -> String {
    let quoted = paths
        .iter()
        .map(|path| format!("`{}`", path.as_ref().display()));
    quoted.collect::<Vec<_>>().join(", ")
}
