//! What there is to report, before it is put into words.

use std::path::PathBuf;

use accelerate_plan::{
    Result,
    cluster::{Allocation, Cluster},
    env::Environment,
};

use super::{
    libtorch::Libtorch,
    platform,
    python::{Package, Python, Torch},
};
use crate::{
    launch::find_on_path,
    machine::{Cores, Devices, Kind, Memory, Root},
};

/// Everything that a report says, but for the config.
#[derive(Debug)]
pub(super) struct Facts {
    /// Operating system, kernel, processor and C library in one word.
    pub(super) platform: String,
    /// Where a shell finds `accelerate`.
    pub(super) location: Option<PathBuf>,
    /// The interpreter that `launch` would choose.
    pub(super) python: Option<Python>,
    pub(super) numpy: Option<Package>,
    pub(super) torch: Option<Torch>,
    /// The Python package of the name of this program.
    pub(super) accelerate: Option<Package>,
    pub(super) libtorch: Option<Libtorch>,
    pub(super) devices: Devices,
    pub(super) cores: Cores,
    pub(super) memory: Option<Memory>,
    /// Version of the software for Ascend devices.
    pub(super) cann: Option<String>,
    /// What the cluster manager says, or why it cannot be believed.
    pub(super) cluster: Option<String>,
}

impl Facts {
    /// Looks at this machine.
    pub(super) fn gather(root: &Root, env: &Environment) -> Result<Self> {
        let python = Python::find(env);
        let package = |name| python.as_ref().and_then(|python| python.package(name));
        Ok(Self {
            platform: platform::describe(root),
            location: location(env),
            numpy: package("numpy"),
            accelerate: package("accelerate"),
            torch: python.as_ref().and_then(Python::torch),
            python,
            libtorch: Libtorch::find(env),
            devices: Devices::read(root, env)?,
            cores: Cores::read(root),
            memory: Memory::read(root),
            cann: cann(root),
            cluster: cluster(env),
        })
    }

    /// The name that PyTorch has for the devices, or why it has none.
    pub(super) fn accelerator(&self) -> Result<&'static str, String> {
        let none = || "N/A".to_owned();
        let kind = self.devices.kind.ok_or_else(none)?;
        if self.devices.count() == 0 {
            return Err(none());
        }
        let built = self.torch.as_ref().is_none_or(|torch| match kind {
            Kind::Cuda => torch.cuda,
            Kind::Rocm => torch.hip,
            Kind::Xpu => torch.xpu,
            // These come as packages of their own.
            _ => true,
        });
        match built {
            true => Ok(kind.torch_name()),
            false => Err(format!(
                "N/A ({kind}s: {}, but this PyTorch is not built for them)",
                self.devices.count()
            )),
        }
    }
}

/// The first `accelerate` on the search path.
fn location(env: &Environment) -> Option<PathBuf> {
    find_on_path(env, &["accelerate"])
}

fn cann(root: &Root) -> Option<String> {
    let toolkit = "/usr/local/Ascend/ascend-toolkit/latest";
    let mut folders = root.names(toolkit).into_iter();
    folders.find_map(|folder| {
        let text = root.text(format!("{toolkit}/{folder}/ascend_toolkit_install.info"))?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("version="))?;
        Some(version.trim().to_owned())
    })
}

/// A report must not fail because of what it reports: a contradiction is part of the text.
fn cluster(env: &Environment) -> Option<String> {
    match Cluster::read(env) {
        Ok(Some(cluster)) => Some(cluster.to_string()),
        Ok(None) => {
            let job = Allocation::read(env).ok().flatten()?;
            Some(format!("{job}, not in a step of several tasks"))
        }
        Err(error) => Some(format!("cannot be read: {error}")),
    }
}
