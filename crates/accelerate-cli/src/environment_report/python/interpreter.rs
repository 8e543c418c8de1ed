//! What the files around an interpreter tell about it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use accelerate_plan::env::{Environment, PYENV_ROOT, PYENV_VERSION};

/// An interpreter, its virtual environment and its installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interpreter {
    /// The file itself, behind all links.
    real: PathBuf,
    /// The folder that holds `bin/`, behind all links.
    prefix: PathBuf,
    environment: Option<VirtualEnvironment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct VirtualEnvironment {
    folder: PathBuf,
    /// Text of its `pyvenv.cfg`.
    settings: String,
}

impl Interpreter {
    /// Looks at the files around an executable; `None` if it does not exist.
    pub(super) fn look_at(executable: &Path, env: &Environment) -> Option<Self> {
        let behind = behind_pyenv(executable, env);
        let executable = behind.as_deref().unwrap_or(executable);
        let real = executable.canonicalize().ok()?;
        let prefix = real.parent()?.parent()?.to_owned();
        Some(Self {
            environment: VirtualEnvironment::around(executable),
            real,
            prefix,
        })
    }

    /// The folder of the installation.
    pub(super) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The folder of the virtual environment.
    pub(super) fn environment(&self) -> Option<&Path> {
        self.environment
            .as_ref()
            .map(|environment| environment.folder.as_path())
    }

    /// Whether a virtual environment has the packages of its installation too.
    pub(super) fn sees_system_packages(&self) -> bool {
        let setting = self
            .environment
            .as_ref()
            .and_then(|environment| environment.setting("include-system-site-packages"));
        setting.is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// The version: as the headers of the installation state it, or the virtual environment, or the
    /// name of a folder; else without its last number.
    pub(super) fn version(&self) -> Option<String> {
        let stated = self
            .environment
            .as_ref()
            .and_then(VirtualEnvironment::version);
        self.stated_in_headers()
            .or(stated)
            .or_else(|| self.name_of_folder())
            .or_else(|| self.short_version())
    }

    /// The first two numbers of the version: from the name of the file, or of its library.
    pub(super) fn short_version(&self) -> Option<String> {
        let name = self.real.file_name()?.to_str()?;
        let after = |name: &str| {
            let rest = name.strip_prefix("python")?;
            (numbers(rest) == Some(2)).then(|| rest.to_owned())
        };
        after(name).or_else(|| {
            let entries = fs::read_dir(self.prefix.join("lib")).ok()?;
            let mut found: Vec<_> = entries
                .flatten()
                .filter(|entry| entry.path().join("os.py").exists())
                .filter_map(|entry| after(entry.file_name().to_str()?))
                .collect();
            found.sort_by_key(|version| order(version));
            found.pop()
        })
    }

    fn stated_in_headers(&self) -> Option<String> {
        let folder = format!("include/python{}", self.short_version()?);
        let text = fs::read_to_string(self.prefix.join(folder).join("patchlevel.h")).ok()?;
        let mut lines = text.lines();
        let quoted = lines.find_map(|line| {
            let rest = line.strip_prefix("#define PY_VERSION")?;
            // Not `PY_VERSION_HEX`.
            rest.starts_with([' ', '\t']).then(|| rest.trim())
        })?;
        Some(quoted.trim_matches('"').to_owned())
    }

    /// Tools that install several versions name their folders after them.
    fn name_of_folder(&self) -> Option<String> {
        let start = format!("{}.", self.short_version()?);
        let words = self.prefix.iter().filter_map(|part| part.to_str());
        let mut words = words.flat_map(|part| part.split(['-', '@', '_']));
        words
            .find(|word| word.starts_with(&start) && numbers(word) == Some(3))
            .map(str::to_owned)
    }
}

impl VirtualEnvironment {
    /// As Python does it: its settings lie beside the executable or one folder up.
    fn around(executable: &Path) -> Option<Self> {
        let beside = executable.parent()?;
        let mut folders = [Some(beside), beside.parent()].into_iter().flatten();
        folders.find_map(|folder| {
            Some(Self {
                settings: fs::read_to_string(folder.join("pyvenv.cfg")).ok()?,
                folder: folder.to_owned(),
            })
        })
    }

    fn setting(&self, key: &str) -> Option<&str> {
        self.settings.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim())
        })
    }

    fn version(&self) -> Option<String> {
        let version = self
            .setting("version")
            .or_else(|| self.setting("version_info"))?;
        Some(version.trim_end_matches(".final.0").to_owned())
    }
}

/// How many numbers a version such as `3.11` has; `None` if there is anything else in it.
fn numbers(version: &str) -> Option<usize> {
    let are_numbers = version
        .split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    are_numbers.then(|| version.split('.').count())
}

/// Puts 3.9 before 3.11.
fn order(version: &str) -> Vec<u32> {
    let numbers = version.split('.').filter_map(|part| part.parse().ok());
    numbers.collect()
}

/// The executable that a stand-in of pyenv would start: pyenv puts scripts on the search path that
/// choose a version at each call.
fn behind_pyenv(executable: &Path, env: &Environment) -> Option<PathBuf> {
    let folder = executable.parent()?;
    let root = folder.parent()?;
    let text = |variable| env.get(variable).ok().flatten();
    let is_root = text(&PYENV_ROOT).is_some_and(|known| Path::new(&known) == root)
        || root.join("versions").is_dir();
    if !folder.ends_with("shims") || !is_root {
        return None;
    }
    let chosen = text(&PYENV_VERSION)
        .or_else(version_file)
        .or_else(|| fs::read_to_string(root.join("version")).ok())?;
    let name = executable.file_name()?;
    chosen
        .split([':', '\n', ' '])
        .filter(|version| !version.is_empty())
        .filter_map(|version| installed(root, version))
        .map(|folder| folder.join("bin").join(name))
        .find(|path| path.exists())
}

/// The choice for the working folder.
fn version_file() -> Option<String> {
    let here = env::current_dir().ok()?;
    here.ancestors()
        .find_map(|folder| fs::read_to_string(folder.join(".python-version")).ok())
}

/// The folder of a version, or of the newest one that begins so.
fn installed(root: &Path, version: &str) -> Option<PathBuf> {
    let versions = root.join("versions");
    let exact = versions.join(version);
    if exact.is_dir() {
        return Some(exact);
    }
    let start = format!("{version}.");
    let mut found: Vec<_> = fs::read_dir(versions)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&start) && numbers(name).is_some())
        .collect();
    found.sort_by_key(|version| order(version));
    found.pop().map(|name| root.join("versions").join(name))
}
