//! Why a comparison could not be made.

use std::{ffi::OsString, io, path::PathBuf, process::ExitCode};

use accelerate_formats::step_records::StepRecordsError;
use accelerate_plan::{Hint, LEFT_EARLY};

use super::runs::Stage;
use crate::launch::Exit;

/// Why `accelerate verify-resume` does not come to a comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum VerifyResumeError {
    #[error("no program to run: expected `--`, then the program and its arguments")]
    NoProgram,

    #[error("no argument of the program holds `{}`", super::runs::PROJECT_DIR)]
    NoProjectDir,

    #[error("cannot find this executable itself")]
    Launcher { source: io::Error },

    #[error("cannot {action} `{}`", path.display())]
    Folder {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("cannot start `{command}`")]
    Start { command: String, source: io::Error },

    #[error("the {stage} run failed with {exit}: `{command}`\n{last_lines}")]
    Failed {
        stage: Stage,
        command: String,
        exit: Exit,
        /// The end of what it said.
        last_lines: String,
    },

    #[error("the program did not leave behind step {stop}: it went on to its end")]
    DidNotLeave { stop: usize },

    #[error("the {stage} run recorded nothing")]
    NoRecords {
        stage: Stage,
        source: StepRecordsError,
    },

    #[error("the records of the {stage} run cannot be read")]
    Records {
        stage: Stage,
        source: StepRecordsError,
    },

    #[error("cannot stop behind step {stop}: the program makes {steps} steps")]
    NothingLeft { stop: usize, steps: usize },

    #[error(
        "the program was to leave behind step {stop}, and left only behind its last step, {steps}"
    )]
    LeftTooLate { stop: usize, steps: usize },

    #[error("two runs from the start differ at step {step}, before anything was resumed\n  {what}")]
    NotRepeatable { step: usize, what: String },

    #[error("`{}` is no text", word.display())]
    NotText { word: OsString },
}

impl VerifyResumeError {
    /// 2 for a wrong command line, 70 for what is ours, 1 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NoProgram | Self::NoProjectDir | Self::NotText { .. } => 2,
            Self::Launcher { .. } | Self::Start { .. } => 70,
            _ => 1,
        })
    }
}

impl Hint for VerifyResumeError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoProgram => {
                "accelerate verify-resume --cpu --num_processes 2 -- PROGRAM ARGUMENTS"
            }
            Self::NoProjectDir => {
                "give the program the folder for its checkpoints by an argument, such as \
                 `--project-dir {project_dir}`: each run gets a folder of its own"
            }
            Self::DidNotLeave { .. } => {
                "call `accelerator.leave_when_asked()?` behind each step of the optimizer, or save and \
                 return where `accelerator.should_leave()?` says so"
            }
            Self::LeftTooLate { .. } => {
                "it asks too seldom whether to leave: call `accelerator.leave_when_asked()?` within \
                 the loop, behind each step of the optimizer"
            }
            Self::Failed {
                exit: Exit::Code(LEFT_EARLY),
                ..
            } => "the program was asked to end from outside",
            Self::NoRecords { .. } => {
                "steps are recorded by optimizers that `accelerator.prepare` made, in programs built \
                 with this version of the library"
            }
            Self::NothingLeft { .. } => {
                "train for two epochs or more, or choose another step with `--stop_at_step`"
            }
            Self::NotRepeatable { .. } => {
                "seed every generator (`accelerator.set_seed`), and leave the clock and the number of \
                 the process out of what is computed"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
