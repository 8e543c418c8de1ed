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
    /// Whether it is a script that chooses its Python itself, which is to write through at once.
    pub(crate) needs_unbuffered: bool,
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
    let (executable, needs_unbuffered) = match kind {
        Kind::PythonModule => return python(Some("-m"), name, arguments, env, piped),
        Kind::AsIs => (find(name, env)?, false),
        Kind::Recognise => {
            let path = find(name, env)?;
            match Nature::of(&path)? {
                Nature::Python => {
                    return python(None, as_typed(name, &path), arguments, env, piped);
                }
                // Somebody who names an interpreter means it for this script too.
                Nature::ChoosesPython if env.get(&PYTHON_EXEC)?.is_some() => {
                    return python(None, as_typed(name, &path), arguments, env, piped);
                }
                Nature::ChoosesPython => (path, piped),
                Nature::Program => (path, false),
            }
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
        needs_unbuffered,
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
    let on_path = (!names_a_folder).then(|| find_on_path(env, &[name]));
    on_path.flatten().ok_or_else(|| Error::ProgramMissing {
        program: name.display().to_string(),
        folder: std::env::current_dir().unwrap_or_default(),
    })
}

/// A script in the working folder keeps its name: Python shows it to the program.
fn as_typed<'a>(name: &'a OsStr, found: &'a Path) -> &'a OsStr {
    // Python would take a name that begins with a dash for a flag.
    let is_kept = Path::new(name).exists() && !name.as_encoded_bytes().starts_with(b"-");
    match is_kept {
        true => name,
        false => found.as_os_str(),
    }
}

/// What has to be done to run a file.
enum Nature {
    /// The system runs it, or would if it were executable.
    Program,
    /// A script that the system runs, and that names Python as its interpreter.
    ChoosesPython,
    /// It is given to Python.
    Python,
}

impl Nature {
    fn of(path: &Path) -> Result<Self> {
        const ELF: &[u8] = b"\x7fELF";
        const MACH_O: [&[u8]; 3] = [
            &[0xcf, 0xfa, 0xed, 0xfe],
            &[0xca, 0xfe, 0xba, 0xbe],
            &[0xfe, 0xed, 0xfa, 0xcf],
        ];
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if matches!(extension, "py" | "pyc" | "pyz" | "zip") || path.is_dir() {
            return Ok(Self::Python);
        }
        let start = first_bytes(path).map_err(|source| Error::ProgramUnreadable {
            path: path.into(),
            source,
        })?;
        let is_binary =
            start.starts_with(ELF) || MACH_O.iter().any(|magic| start.starts_with(magic));
        let names_python = first_line(&start).map(|line| line.contains("python"));
        Ok(match names_python {
            None if is_binary => Self::Program,
            None => Self::Python,
            Some(true) if is_executable(path) => Self::ChoosesPython,
            Some(true) => Self::Python,
            Some(false) => Self::Program,
        })
    }
}

/// The line that names the interpreter of a script, if there is one.
fn first_line(start: &[u8]) -> Option<String> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    /// No system reads more of the line that names the interpreter.
    const MOST: u64 = 256;
    let mut start = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut start)?;
    Ok(start)
}

/// The first executable on the search path that has one of these names; an earlier name wins.
pub(crate) fn find_on_path<S: AsRef<Path>>(env: &Environment, names: &[S]) -> Option<PathBuf> {
    find_in(&env.search_path(), names)
}

fn find_in<S: AsRef<Path>>(folders: &[PathBuf], names: &[S]) -> Option<PathBuf> {
    names.iter().find_map(|name| {
        folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|candidate| is_executable(candidate))
    })
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
    Ok(Located {
        program,
        python,
        needs_unbuffered: false,
    })
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
    Ok(find_in(&folders, &["python", "python3"]))
}

#[cfg(test)]
mod tests;
