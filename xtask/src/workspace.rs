//! The folders of this workspace, and cargo as the tasks call it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use accelerate_libtorch::Libtorch;
use serde_json::Value;

use crate::failure::Failure;

/// The workspace, or another folder that takes its place in `setup --into`.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

/// One member of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    /// The name of its package.
    pub(crate) name: String,
    /// Its `Cargo.toml`.
    pub(crate) manifest: PathBuf,
    /// The root files of its libraries and binaries.
    pub(crate) roots: Vec<PathBuf>,
}

/// What cargo says about the workspace.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// The members, by name.
    pub(crate) members: Vec<Member>,
    /// Where builds go.
    pub(crate) target_dir: PathBuf,
}

impl Workspace {
    /// The workspace that this task was compiled in.
    pub(crate) fn new() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self {
            root: here.parent().unwrap_or(here).to_owned(),
        }
    }

    /// A folder that takes the place of the workspace.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self {
            root: std::path::absolute(&root).unwrap_or(root),
        }
    }

    /// A path in the workspace.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// The folder in which `setup` puts libtorch.
    pub(crate) fn libtorch_dir(&self) -> PathBuf {
        self.path(".libtorch")
    }

    /// The libtorch that the user asks for by `LIBTORCH_USE_PYTORCH` or `LIBTORCH`, checked.
    ///
    /// `LIBTORCH` counts only if it is not what `.cargo/config.toml` sets for every task.
    pub(crate) fn user_libtorch(&self) -> Result<Option<Libtorch>, Failure> {
        let by_python = env::var_os("LIBTORCH_USE_PYTORCH").is_some();
        let by_folder = env::var_os("LIBTORCH").is_some_and(|folder| !self.is_default(&folder));
        if by_python || by_folder {
            return Ok(Some(Libtorch::locate()?.check()?));
        }
        Ok(None)
    }

    fn is_default(&self, folder: &OsStr) -> bool {
        let default = Self::new().libtorch_dir();
        [default, self.libtorch_dir()]
            .iter()
            .any(|dir| dir == Path::new(folder))
    }

    /// A cargo command in the workspace, in the environment that a user's own cargo would have.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        if env::var_os("LIBTORCH").is_some_and(|folder| self.is_default(&folder)) {
            command.env_remove("LIBTORCH");
        }
        command
    }

    /// Asks cargo for the members and the target folder.
    pub(crate) fn metadata(&self) -> Result<Metadata, Failure> {
        let output = self
            .cargo()
            .args(["metadata", "--no-deps", "--format-version=1"])
            .output()
            .map_err(|error| Failure::because("cannot run `cargo metadata`", error))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Failure::because("`cargo metadata` failed", text));
        }
        let value: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::because("`cargo metadata` printed no JSON", error))?;
        Ok(Metadata {
            members: list(&value["packages"]).map(member).collect(),
            target_dir: path(&value["target_directory"]),
        })
    }
}

fn member(package: &Value) -> Member {
    let is_root = |target: &&Value| {
        list(&target["kind"]).filter_map(Value::as_str).any(|kind| {
            matches!(
                kind,
                "lib" | "rlib" | "cdylib" | "staticlib" | "proc-macro" | "bin"
            )
        })
    };
    Member {
        name: package["name"].as_str().unwrap_or_default().to_owned(),
        manifest: path(&package["manifest_path"]),
        roots: list(&package["targets"])
            .filter(is_root)
            .map(|target| path(&target["src_path"]))
            .collect(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn path(value: &Value) -> PathBuf {
    PathBuf::from(value.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_has_this_member() {
        let metadata = Workspace::new().metadata().unwrap();
        let me = metadata
            .members
            .iter()
            .find(|member| member.name == "xtask")
            .unwrap();
        assert!(
            me.roots
                .iter()
                .any(|root| root.ends_with("xtask/src/main.rs")),
            "{me:?}"
        );
        assert!(me.manifest.ends_with("xtask/Cargo.toml"));
    }

    #[test]
    fn the_configured_folder_is_not_the_users_wish() {
        let workspace = Workspace::at(PathBuf::from("/somewhere"));
        assert!(workspace.is_default(OsStr::new("/somewhere/.libtorch")));
        assert!(workspace.is_default(Workspace::new().libtorch_dir().as_os_str()));
        assert!(!workspace.is_default(OsStr::new("/opt/libtorch")));
    }
}
