//! Where the self-test program is.

use std::{
    env::{self, consts::EXE_SUFFIX},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use accelerate_plan::env::Environment;

use super::SelfTestError;

/// Names the program, wherever it is.
const VARIABLE: &str = "ACCELERATE_SELFTEST";
const NAME: &str = "accelerate-selftest";

/// The program that the variable names, else the one beside `launcher`, else one on the search path.
pub(super) fn find(launcher: &Path, env: &Environment) -> Result<PathBuf, SelfTestError> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return match is_executable(Path::new(&path)) {
            true => Ok(path.into()),
            false => Err(SelfTestError::ProgramUnusable {
                variable: VARIABLE,
                path: path.into(),
            }),
        };
    }
    let beside = launcher.parent().unwrap_or(launcher);
    let file = format!("{NAME}{EXE_SUFFIX}");
    [beside.to_owned()]
        .into_iter()
        .chain(env.search_path())
        .map(|folder| folder.join(&file))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| SelfTestError::ProgramMissing {
            beside: beside.to_owned(),
        })
}

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
