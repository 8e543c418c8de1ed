//! `accelerate config update`: the same settings, in the spelling and with all entries of this
//! version.

use std::process::ExitCode;

use accelerate_plan::settings::ConfigFile;

use super::{
    UpdateArgs,
    error::Result,
    save::{self, Target},
    tell,
};
use crate::report;

/// Rewrites the file, with the defaults of what it did not say.
pub(super) fn run(args: &UpdateArgs) -> Result<ExitCode> {
    let path = save::path(args.config_file.as_deref())?;
    let file = ConfigFile::read(&path)?;
    let notices = file
        .notices
        .iter()
        .map(|notice| format!("line {}: {}", notice.line, notice.text));
    let notices: Vec<_> = notices.collect();
    if !notices.is_empty() {
        report::note("rewritten in the spelling of this version:", &notices);
    }
    Target::new(Some(&path))?.write(&save::render(file.updated(), &path))?;
    tell(&format!("configuration updated at {}\n", path.display()));
    Ok(ExitCode::SUCCESS)
}
