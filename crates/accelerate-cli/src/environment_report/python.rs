//! The Python that `launch` would start, without starting it.

mod interpreter;
mod packages;

use std::path::{Path, PathBuf};

use accelerate_plan::env::{Environment, HOME, PYTHONPATH, PYTHONUSERBASE};

use self::interpreter::Interpreter;
pub(super) use self::packages::{Package, Torch};

/// An interpreter and where it finds packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Python {
    /// The file to execute.
    pub(super) executable: PathBuf,
    /// Its version, such as `3.11.7`, or `3.11` where nothing tells more.
    pub(super) version: Option<String>,
    /// Folders with packages, in the order in which it searches them.
    folders: Vec<PathBuf>,
}

impl Python {
    /// The interpreter that `launch` would choose; `None` if there is none.
    pub(super) fn find(env: &Environment) -> Option<Self> {
        // A report must not fail because of what it reports.
        let chosen = crate::launch::interpreter(env).ok().flatten()?;
        let interpreter = Interpreter::look_at(&chosen, env)?;
        Some(Self {
            folders: package_folders(&interpreter, env),
            version: interpreter.version(),
            executable: chosen,
        })
    }

    /// The installed package of a name.
    pub(super) fn package(&self, name: &str) -> Option<Package> {
        let mut folders = self.folders.iter();
        folders.find_map(|folder| Package::find(folder, name))
    }

    /// The installed PyTorch.
    pub(super) fn torch(&self) -> Option<Torch> {
        self.folders.iter().find_map(|folder| Torch::find(folder))
    }
}

fn package_folders(interpreter: &Interpreter, env: &Environment) -> Vec<PathBuf> {
    let text = |variable| env.get(variable).ok().flatten();
    let mut folders: Vec<PathBuf> = text(&PYTHONPATH)
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let below = |prefix: &Path| {
        let short = interpreter.short_version().unwrap_or_default();
        ["lib", "lib64"].map(|lib| {
            prefix
                .join(lib)
                .join(format!("python{short}"))
                .join("site-packages")
        })
    };
    if let Some(environment) = interpreter.environment() {
        folders.extend(below(environment));
        if !interpreter.sees_system_packages() {
            return folders;
        }
    }
    let user = text(&PYTHONUSERBASE)
        .map(PathBuf::from)
        .or_else(|| text(&HOME).map(|home| Path::new(&home).join(".local")));
    folders.extend(user.iter().flat_map(|user| below(user)));
    folders.extend(below(interpreter.prefix()));
    folders.extend(debian(interpreter));
    folders
}

/// Debian's own Python keeps packages elsewhere.
fn debian(interpreter: &Interpreter) -> Vec<PathBuf> {
    if interpreter.prefix() != Path::new("/usr") {
        return Vec::new();
    }
    let short = interpreter.short_version().unwrap_or_default();
    vec![
        PathBuf::from(format!("/usr/local/lib/python{short}/dist-packages")),
        PathBuf::from("/usr/lib/python3/dist-packages"),
    ]
}

#[cfg(test)]
mod tests;
