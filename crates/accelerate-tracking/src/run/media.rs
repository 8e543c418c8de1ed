//! Pictures and tables of a run.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::MEDIA_FOLDER;
use crate::error::{Result, io_error};
use crate::file_name::safe;

/// What a file in the folder of media is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediumKind {
    /// A picture as PNG.
    Image,
    /// A table as JSON: `columns` and `data`.
    Table,
    /// A word of a newer version.
    #[default]
    #[serde(other)]
    Other,
}

/// A line of `media.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Medium {
    /// When it was logged, in seconds since the start of the run.
    pub t: f64,
    /// At which step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Under which name.
    pub name: String,
    /// What it is.
    pub kind: MediumKind,
    /// Its file, relative to the folder of the run.
    pub file: String,
    /// The text that stands below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
}

impl Medium {
    /// Its file in `folder`, if the path leads into the folder of media and nowhere else.
    #[must_use]
    pub fn path(&self, folder: &Path) -> Option<PathBuf> {
        let relative = Path::new(&self.file);
        let plain = relative
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        (plain && relative.starts_with(MEDIA_FOLDER)).then(|| folder.join(relative))
    }
}

/// Writes the file of a medium; gives its path relative to the folder of the run.
pub(super) fn write(
    folder: &Path,
    name: &str,
    number: u64,
    ending: &str,
    bytes: &[u8],
) -> Result<String> {
    let relative = format!("{MEDIA_FOLDER}/{}/{number:08}.{ending}", safe(name));
    let path = folder.join(&relative);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|source| io_error("make", parent, source))?;
    }
    fs::write(&path, bytes).map_err(|source| io_error("write", &path, source))?;
    Ok(relative)
}
