//! Variables that reach the processes on other machines.
//!
//! Three sources, a later one wins: variables of this process whose names begin with one of
//! [`PREFIXES`]; the file `.deepspeed_env` in the home folder and in the working folder; the
//! variables of the job. What belongs to one process, and what looks like a secret, is left out: the
//! values become arguments of commands, which everybody on a machine can read.

use std::{
    fs,
    io::{self, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use accelerate_plan::env::{
    DS_ENV_FILE, EnvOverlay, Inheritance, PYTHON_EXEC, REMOTE_BIN, TABLE, Writer,
};
use indexmap::IndexMap;

use crate::launch::hosts::{HostsError, Machine, Result};

/// Beginnings of the names that are passed on from this process.
const PREFIXES: [&str; 14] = [
    "ACCELERATE_",
    "FSDP_",
    "MEGATRON_LM_",
    "PARALLELISM_CONFIG_",
    "OMP_",
    "KMP_",
    "NCCL",
    "GLOO_",
    "TORCH_",
    "UCX",
    "MV2",
    "MLFLOW",
    "PYTHON",
    "HF_",
];

/// Beginnings of the names that we own in the file: old ones of ours are not kept there.
const OURS: [&str; 4] = [
    "ACCELERATE_",
    "FSDP_",
    "MEGATRON_LM_",
    "PARALLELISM_CONFIG_",
];

/// Parts of names whose values nobody should read.
const SECRET: [&str; 8] = [
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
];

/// Variables for other machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exports {
    /// Names and values.
    pub(super) pairs: IndexMap<String, String>,
    /// What was left out and why, one line each.
    pub(super) notes: Vec<String>,
}

impl Exports {
    /// Collects the variables. `python` is the interpreter that the program needs.
    ///
    /// # Errors
    /// [`HostsError::EnvFileUnreadable`] for a file that exists.
    pub(super) fn collect(
        machine: &Machine<'_>,
        overlay: &EnvOverlay,
        python: Option<&Path>,
    ) -> Result<Self> {
        let mut exports = Self::of_process(machine, python);
        for path in env_files(machine)?.readable() {
            exports.read_file(&path)?;
        }
        exports.add_job(machine, overlay);
        Ok(exports)
    }

    /// What this process has to pass on. An interpreter that the user chose comes before ours.
    fn of_process(machine: &Machine<'_>, python: Option<&Path>) -> Self {
        let mut exports = Self::default();
        if let Some(python) = python.and_then(Path::to_str) {
            exports.set(PYTHON_EXEC.name(), python);
        }
        exports.inherit(machine);
        exports
    }

    fn add_job(&mut self, machine: &Machine<'_>, overlay: &EnvOverlay) {
        self.lead_python_here(&machine.folder);
        for (name, value) in overlay.iter() {
            self.set(name, value);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.pairs.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.pairs.contains_key(name)
    }

    fn inherit(&mut self, machine: &Machine<'_>) {
        for (name, value) in machine.environment.iter() {
            let Some(name) = name.to_str().filter(|name| begins_with(name, &PREFIXES)) else {
                continue;
            };
            if belongs_to_one_process(name) || value.is_empty() {
                continue;
            }
            match value.to_str() {
                Some(value) => self.set_unless_secret(name, value, "the environment"),
                None => self.leave_out(name, "its value is not UTF-8"),
            }
        }
    }

    fn read_file(&mut self, path: &Path) -> Result<()> {
        let source = path.display().to_string();
        for line in read(path)?.lines() {
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            match content.split_once('=').filter(|(name, _)| is_name(name)) {
                Some((name, _)) if is_of_the_job(name) => {}
                Some((name, value)) => self.set_unless_secret(name, value, &source),
                None => self.notes.push(format!(
                    "a line of `{source}` was left out: expected `NAME=value`"
                )),
            }
        }
        Ok(())
    }

    fn set_unless_secret(&mut self, name: &str, value: &str, source: &str) {
        match is_secret(name) {
            true => self.leave_out(
                name,
                &format!("it may be a secret; it was found in {source}"),
            ),
            false => self.set(name, value),
        }
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        self.notes.push(format!(
            "`{name}` is not passed on to other machines: {why}"
        ));
    }

    /// Modules of the working folder are found first, as they are here.
    fn lead_python_here(&mut self, folder: &Path) {
        let folder = folder.display();
        let path = match self.pairs.get("PYTHONPATH") {
            Some(old) => format!("{folder}:{old}"),
            None => folder.to_string(),
        };
        self.set("PYTHONPATH", &path);
    }
}

/// Where files of variables are.
struct EnvFiles {
    /// In the home folder.
    home: Option<PathBuf>,
    /// In the working folder, or the one named.
    here: PathBuf,
}

impl EnvFiles {
    fn readable(&self) -> Vec<PathBuf> {
        let all = self.home.iter().chain([&self.here]);
        let mut files: Vec<_> = all.filter(|path| path.is_file()).cloned().collect();
        files.dedup();
        files
    }
}

fn env_files(machine: &Machine<'_>) -> Result<EnvFiles> {
    let name = machine.environment.get_or_default(&DS_ENV_FILE)?;
    let name = PathBuf::from(name.unwrap_or_default());
    let home = machine.home.as_ref().filter(|_| name.is_relative());
    Ok(EnvFiles {
        home: home.map(|home| home.join(&name)),
        here: machine.folder.join(&name),
    })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| HostsError::EnvFileUnreadable {
        path: path.to_owned(),
        source,
    })
}

fn begins_with(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|begin| name.starts_with(begin))
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// Whether each process gets its own value, or each machine has its own.
fn belongs_to_one_process(name: &str) -> bool {
    let is_told =
        |inheritance, writer| inheritance == Inheritance::Replaced || matches!(writer, Writer::Mpi);
    name == REMOTE_BIN.name()
        || TABLE
            .iter()
            .any(|entry| entry.name == name && is_told(entry.inheritance, entry.writer))
}

/// Whether a launcher writes the variable anew for each job: what an old file says is stale.
fn is_of_the_job(name: &str) -> bool {
    let is_written = |writer| matches!(writer, Writer::Launcher | Writer::Mpi);
    begins_with(name, &OURS)
        || TABLE
            .iter()
            .any(|entry| entry.name == name && is_written(entry.writer))
}

/// The file `.deepspeed_env` (or the one that `DS_ENV_FILE` names), as it will be.
///
/// The command does not need it: it is for DeepSpeed's own tools. Lines of others are kept, ours are
/// written anew, so the file does not grow and holds no secret of this environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl EnvFile {
    /// The file with the variables of this process and of the job, and notes on those that its form
    /// cannot hold; `None` if there is at most one variable to write.
    ///
    /// # Errors
    /// [`HostsError::EnvFileUnreadable`] for a file that exists.
    pub(super) fn new(
        machine: &Machine<'_>,
        overlay: &EnvOverlay,
        python: Option<&Path>,
    ) -> Result<(Option<Self>, Vec<String>)> {
        let mut exports = Exports::of_process(machine, python);
        exports.add_job(machine, overlay);
        let path = env_files(machine)?.here;
        let (writable, skipped): (Vec<_>, Vec<_>) =
            exports.iter().partition(|(name, value)| fits(name, value));
        let notes = skipped.iter().map(|(name, _)| {
            format!(
                "`{name}` is not written to `{}`: a value there has no space, `;`, `<`, `>` or \
                 line break, and is not empty",
                path.display()
            )
        });
        let notes = notes.collect();
        if writable.len() <= 1 {
            return Ok((None, notes));
        }
        let old = match path.is_file() {
            true => read(&path)?,
            false => String::new(),
        };
        let is_foreign = |line: &&str| {
            let name = line.split('=').next().unwrap_or_default().trim();
            !is_of_the_job(name) && !exports.pairs.contains_key(name)
        };
        let foreign = old
            .lines()
            .filter(is_foreign)
            .map(|line| format!("{line}\n"));
        let own = writable
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"));
        let text = foreign.chain(own).collect();
        Ok((Some(Self { path, text }), notes))
    }

    /// Writes the file, whole or not at all, readable by its owner only.
    ///
    /// # Errors
    /// [`HostsError::EnvFileUnwritable`].
    pub(crate) fn write(&self) -> Result<()> {
        self.replace()
            .map_err(|source| HostsError::EnvFileUnwritable {
                path: self.path.clone(),
                source,
            })
    }

    fn replace(&self) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let fresh = self.path.with_file_name(name);
        if let Err(error) = fs::remove_file(&fresh)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(self.text.as_bytes())
            .and_then(|()| fs::rename(&fresh, &self.path))
            .inspect_err(|_| {
                // The first error says more.
                let _ = fs::remove_file(&fresh);
            })
    }
}

/// Whether a line of the file can hold the variable.
fn fits(name: &str, value: &str) -> bool {
    let breaks = |text: &str| text.contains([';', '\n', '\r', '<', '>', ' ']);
    !value.is_empty() && !breaks(name) && !breaks(value)
}

#[cfg(test)]
mod tests;
