//! The Python environment with the original, under `.peers`, for comparisons.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::python::Python;
use crate::setup::TORCH_VERSION;
use crate::step;
use crate::workspace::Workspace;

/// What the recorded numbers were made with.
const PACKAGES: [(&str, &str); 14] = [
    ("torch", TORCH_VERSION),
    // Headers that those of CUDA include, for `check-cuda`.
    ("nvidia-cuda-crt", "13.0.88"),
    ("nvidia-cuda-cccl", "13.0.85"),
    ("accelerate", "1.15.0"),
    ("transformers", "5.24.0"),
    ("numpy", "2.4.6"),
    ("safetensors", "0.8.0"),
    // Optimizers that need no schedule.
    ("schedulefree", "1.4.1"),
    // The names of their models, and numbers to compare ours with.
    ("torchvision", "0.28.0"),
    ("timm", "1.0.31"),
    // Readers of what our trackers write.
    ("tensorboard", "2.21.0"),
    ("mlflow", "3.17.2"),
    ("dvclive", "3.49.1"),
    ("wandb", "0.31.0"),
];

/// Prints the installed version of each package that is asked for.
const VERSIONS: &str = "
import importlib.metadata as metadata, json, sys
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
";

/// The oldest Python that all packages support.
const OLDEST: (u64, u64) = (3, 11);

/// The whole of PyTorch with its CUDA packages, and pip's copies while installing.
const DISK: u64 = 12_000_000_000;

/// An environment that has all packages in their pinned versions.
#[derive(Debug)]
pub(crate) struct PythonEnv {
    folder: PathBuf,
}

impl PythonEnv {
    /// Takes the environment of the workspace, or makes it, or completes it.
    pub(crate) fn set_up(workspace: &Workspace) -> Result<Self, Failure> {
        let env = Self {
            folder: workspace.path(".peers"),
        };
        if env.is_complete() {
            println!(
                "Python packages of the original in `{}`",
                env.folder.display()
            );
            return Ok(env);
        }
        step::step("Python environment with the original", || {
            env.install(workspace)
        })?;
        if env.is_complete() {
            return Ok(env);
        }
        Err(Failure::new(format!(
            "`{}` has other versions than asked for",
            env.folder.display()
        ))
        .hint("delete the folder and run the command again"))
    }

    /// The environment's interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        self.program("python")
    }

    /// A program that one of the packages installs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// The environment's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn is_complete(&self) -> bool {
        let mut ask = Command::new(self.python());
        ask.args(["-c", VERSIONS])
            .args(PACKAGES.map(|(name, _)| name));
        step::output(&mut ask)
            .ok()
            .and_then(|text| serde_json::from_str::<Value>(text.trim()).ok())
            .is_some_and(|found| are_pinned(&found))
    }

    fn install(&self, workspace: &Workspace) -> Result<(), Failure> {
        let root = workspace.path("");
        if Python::probe(&self.python(), &root).is_err() {
            let python = Python::find(&root)?;
            python.require_version(OLDEST.0, OLDEST.1)?;
            python.require_disk(DISK, "PyTorch with CUDA and the original")?;
            step::run(
                python
                    .command()
                    .args(["-m", "venv", "--clear"])
                    .arg(&self.folder),
            )
            .map_err(|failure| {
                Failure::because("cannot make a Python environment", failure)
                    .hint("install the `venv` module, for example `apt-get install python3-venv`")
            })?;
        }
        let pins = PACKAGES.map(|(name, version)| format!("{name}=={version}"));
        let mut pip = Command::new(self.python());
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
        ])
        .args(pins);
        step::run(&mut pip).map_err(|failure| {
            Failure::because("cannot install the original", failure)
                .hint("check the network and the disk, then run the command again")
        })
    }
}

fn are_pinned(found: &Value) -> bool {
    PACKAGES
        .iter()
        .all(|(name, version)| found[*name] == json!(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_must_have_its_version() {
        let mut found = json!({});
        for (name, version) in PACKAGES {
            assert!(!are_pinned(&found));
            found[name] = json!(version);
        }
        assert!(are_pinned(&found));
        found["torch"] = json!("2.12.0");
        assert!(!are_pinned(&found));
        found["torch"] = json!(null);
        assert!(!are_pinned(&found));
    }
}
