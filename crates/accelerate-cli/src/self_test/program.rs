//! Where the self-test program is.

use std::{
    env::consts::EXE_SUFFIX,
    path::{Path, PathBuf},
};

use accelerate_plan::env::{Environment, SELFTEST};

use super::SelfTestError;
use crate::launch::{find_on_path, is_executable};

const NAME: &str = "accelerate-selftest";

/// The program that the variable names, else the one beside `launcher`, else one on the search path.
pub(super) fn find(launcher: &Path, env: &Environment) -> Result<PathBuf, SelfTestError> {
    if let Some(path) = env.get(&SELFTEST)? {
        return match is_executable(Path::new(&path)) {
            true => Ok(path.into()),
            false => Err(SelfTestError::ProgramUnusable {
                variable: SELFTEST.name(),
                path: path.into(),
            }),
        };
    }
    let beside = launcher.parent().unwrap_or(launcher);
    let file = format!("{NAME}{EXE_SUFFIX}");
    Some(beside.join(&file))
        .filter(|candidate| is_executable(candidate))
        .or_else(|| find_on_path(env, &[&file]))
        .ok_or_else(|| SelfTestError::ProgramMissing {
            beside: beside.to_owned(),
        })
}
