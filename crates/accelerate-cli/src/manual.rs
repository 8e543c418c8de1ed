//! What is generated from the definition of the command line: completions and man pages.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use accelerate_plan::Hint;
use clap::Args;
use clap_complete::Shell;

/// What was typed after `accelerate completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell that is to complete words
    shell: Shell,
}

/// What was typed after `accelerate man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for one page per command; without it, the main page goes to stdout
    folder: Option<PathBuf>,
}

/// Why a page could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write man pages into `{}`", folder.display())]
pub(crate) struct ManualError {
    folder: PathBuf,
    source: io::Error,
}

impl Hint for ManualError {
    fn hint(&self) -> Option<String> {
        Some("name a folder that can be written".to_owned())
    }
}

/// Writes the completions of a shell to stdout.
pub(crate) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    // A closed pipe is the reader's wish.
    let _ = io::Write::write_all(&mut io::stdout(), &script);
    ExitCode::SUCCESS
}

/// Writes man pages.
///
/// # Errors
/// If the folder cannot be written.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> Result<ExitCode, ManualError> {
    match &args.folder {
        None => {
            let _ = clap_mangen::Man::new(command).render(&mut io::stdout());
        }
        Some(folder) => write_pages(folder, command).map_err(|source| ManualError {
            folder: folder.clone(),
            source,
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_pages(folder: &Path, command: clap::Command) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}
