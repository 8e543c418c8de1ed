//! Which file to execute for the program that the user named.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use accelerate_plan::{
    env::{Environment, PYTHON_EXEC, VIRTUAL_ENV},
    launch::Program,
};

use crate::error::{Error, Result};

/// What the user said about the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: an executable is run, anything else is given to Python.
    Recognise,
    /// It is the name of a Python module.
    PythonModule,
    /// It is to be executed, whatever it is.
    AsIs,
}

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    /// What to execute.
    pub(crate) program: Program,
    /// The interpreter, if the program is written in Python.
    pub(crate) python: Option<PathBuf>,
}

/// Finds the program that `command` names. Python writes through at once if its output is `piped`.
pub(crate) fn locate(
    command: &[OsString],
    kind: Kind,
    env: &Environment,
    piped: bool,
) -> Result<Located> {
    let (name, arguments) = command.split_first().ok_or_else(|| Error::ProgramMissing {
        program: String::new(),
        folder: PathBuf::from("."),
    })?;
    let executable = match kind {
        Kind::PythonModule => return python(Some("-m"), name, arguments, env, piped),
        Kind::AsIs => find(name, env)?,
        Kind::Recognise => {
            let path = find(name, env)?;
            if !runs_by_itself(&path)? {
                return python(None, path.as_os_str(), arguments, env, piped);
            }
            path
        }
    };
    if !is_executable(&executable) {
        return Err(Error::ProgramNotExecutable { path: executable });
    }
    let program = Program {
        name: short(name),
        executable,
        arguments: arguments.to_vec(),
    };
    Ok(Located {
        program,
        python: None,
    })
}

fn short(name: &OsStr) -> String {
    Path::new(name)
        .file_name()
        .unwrap_or(name)
        .display()
        .to_string()
}

/// A file of this name in the working folder, else an executable on the search path.
fn find(name: &OsStr, env: &Environment) -> Result<PathBuf> {
    let path = Path::new(name);
    let names_a_folder = path.components().count() > 1;
    if path.exists() {
        // A bare name would be looked up on the search path when it is executed.
        return Ok(if names_a_folder {
            path.to_owned()
        } else {
            Path::new(".").join(path)
        });
    }
    let candidates = env.search_path();
    candidates
        .iter()
        .filter(|_| !names_a_folder)
        .map(|folder| folder.join(path))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| Error::ProgramMissing {
            program: name.display().to_string(),
            folder: std::env::current_dir().unwrap_or_default(),
        })
}

/// Whether the system can run a file without an interpreter that we would have to choose.
fn runs_by_itself(path: &Path) -> Result<bool> {
    const ELF: &[u8] = b"\x7fELF";
    const MACH_O: [[u8; 4]; 3] = [
        [0xcf, 0xfa, 0xed, 0xfe],
        [0xca, 0xfe, 0xba, 0xbe],
        [0xfe, 0xed, 0xfa, 0xcf],
    ];
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    if matches!(extension, "py" | "pyc" | "pyz" | "zip") || path.is_dir() {
        return Ok(false);
    }
    let start = first_bytes(path).map_err(|source| Error::ProgramUnreadable {
        path: path.into(),
        source,
    })?;
    let is_binary = start == ELF || MACH_O.iter().any(|magic| start == magic);
    Ok(is_binary || start.starts_with(b"#!") && is_executable(path))
}

fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start)
}

pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn python(
    flag: Option<&str>,
    name: &OsStr,
    arguments: &[OsString],
    env: &Environment,
    piped: bool,
) -> Result<Located> {
    let executable = interpreter(env)?.ok_or_else(|| Error::PythonMissing {
        program: short(name),
    })?;
    let flags = piped
        .then_some("-u")
        .into_iter()
        .chain(flag)
        .map(OsString::from);
    let arguments = flags
        .chain([name.to_owned()])
        .chain(arguments.iter().cloned())
        .collect();
    let python = Some(executable.clone());
    let program = Program {
        name: short(name),
        executable,
        arguments,
    };
    Ok(Located { program, python })
}

/// `PYTHON_EXEC`, else `python` of the active environment, else `python` or `python3` on the path.
pub(crate) fn interpreter(env: &Environment) -> Result<Option<PathBuf>> {
    if let Some(python) = env.get(&PYTHON_EXEC)? {
        return match find(OsStr::new(&python), env) {
            Ok(found) if is_executable(&found) => Ok(Some(found)),
            _ => Err(Error::ChosenPythonMissing { python }),
        };
    }
    let active = env
        .get(&VIRTUAL_ENV)?
        .map(|folder| Path::new(&folder).join("bin"));
    let folders: Vec<PathBuf> = active.into_iter().chain(env.search_path()).collect();
    let on_path = |name: &str| {
        folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|candidate| is_executable(candidate))
    };
    Ok(on_path("python").or_else(|| on_path("python3")))
}

#[cfg(test)]
mod tests;
