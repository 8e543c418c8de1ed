//! Packages in a folder of Python.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Package {
    pub(in super::super) version: String,
}

impl Package {
    /// The package of a name in a folder, by what its installer wrote down about it.
    pub(super) fn find(folder: &Path, name: &str) -> Option<Self> {
        let entries = fs::read_dir(folder).ok()?;
        let mut records: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| describes(path, name))
            .collect();
        records.sort_unstable();
        records.iter().find_map(|record| {
            Some(Self {
                version: version(record)?,
            })
        })
    }
}

/// Whether a file or folder is the record of a package, such as `numpy-2.4.6.dist-info`.
fn describes(path: &Path, name: &str) -> bool {
    let record = path.extension().and_then(|extension| extension.to_str());
    if !matches!(record, Some("dist-info" | "egg-info")) {
        return false;
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let package = stem.map(|stem| stem.split('-').next().unwrap_or(stem));
    package.is_some_and(|package| package.eq_ignore_ascii_case(name))
}

/// The version that a record states.
fn version(record: &Path) -> Option<String> {
    let files: [PathBuf; 3] = [
        record.join("METADATA"),
        record.join("PKG-INFO"),
        record.to_owned(),
    ];
    let text = files
        .iter()
        .find_map(|file| fs::read_to_string(file).ok())?;
    let line = text
        .lines()
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix("Version:"))?;
    Some(line.trim().to_owned())
}

/// An installed PyTorch, and what it was built for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Torch {
    /// With the part after `+` that names the build, as `torch.__version__` has it.
    pub(in super::super) version: String,
    pub(in super::super) cuda: bool,
    pub(in super::super) hip: bool,
    pub(in super::super) xpu: bool,
}

impl Torch {
    /// The one in a folder, by the file in which it states its version.
    pub(super) fn find(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("torch/version.py")).ok()?;
        let value = |name: &str| assigned(&text, name);
        Some(Self {
            version: value("__version__")?,
            cuda: value("cuda").is_some(),
            hip: value("hip").is_some(),
            xpu: value("xpu").is_some(),
        })
    }
}

/// The text that a line such as `cuda: Optional[str] = '13.0'` assigns; `None` for other values.
fn assigned(text: &str, name: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let (target, value) = line.split_once('=')?;
        let target = target.split(':').next()?.trim();
        (target == name).then(|| value.trim())
    });
    let value = values.next()?;
    let quoted = value.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
    Some(quoted.to_owned())
}
