//! Starts the built binary on a folder of its own, with an empty cache of the hub.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use accelerate_formats::{Dtype, Metadata, TensorData, write_file};
use serde_json::Value;
use tempfile::TempDir;

/// A folder for models.
pub(crate) struct Folder(TempDir);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a safetensors file of zeros; returns the bytes of its tensors.
    pub(crate) fn weights(&self, name: &str, tensors: &[(&str, Dtype, &[usize])]) -> u64 {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let size = |(_, dtype, shape): &(&str, Dtype, &[usize])| dtype.bits_of(shape).unwrap() / 8;
        let data: Vec<Vec<u8>> = tensors.iter().map(|tensor| vec![0; size(tensor)]).collect();
        let views = tensors.iter().zip(&data);
        let views =
            views.map(|((name, dtype, shape), data)| TensorData::new(name, *dtype, shape, data));
        write_file(&path, views.collect::<Vec<_>>(), &Metadata::pytorch()).unwrap();
        data.iter().map(|data| data.len() as u64).sum()
    }

    /// `accelerate estimate-memory` in this folder.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, &[])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        self.accelerate("estimate-memory", arguments, variables)
    }

    /// A subcommand in this folder.
    pub(crate) fn accelerate(
        &self,
        subcommand: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_accelerate"));
        command
            .arg(subcommand)
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .env("HF_HUB_CACHE", self.path("cache"))
            .env("HF_HUB_OFFLINE", "1")
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        Ended {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    /// The answer as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
        serde_json::from_str(&ended.out).unwrap()
    }
}
