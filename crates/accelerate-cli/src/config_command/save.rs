//! The file that is written: whole, or not at all.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use accelerate_formats::AtomicFile;
use accelerate_plan::{
    config::{ConfigFormat, Value, default_config_path, json, yaml},
    env::Environment,
};

use super::error::{ConfigCommandError, Result};

/// Where a file goes.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    /// Whether its folder is made if need be.
    makes_folder: bool,
}

impl Target {
    /// The file that was named, whose folder must exist, or the default file.
    ///
    /// It is called before questions are asked, so that no answers are lost.
    ///
    /// # Errors
    /// [`ConfigCommandError::FolderMissing`], and those of [`path`].
    pub(super) fn new(named: Option<&Path>) -> Result<Self> {
        let target = Self {
            path: path(named)?,
            makes_folder: named.is_none(),
        };
        let folder = target.folder();
        if !target.makes_folder && !folder.is_dir() {
            return Err(ConfigCommandError::FolderMissing {
                folder: folder.to_owned(),
            });
        }
        Ok(target)
    }

    /// The same, with a folder that is made if need be.
    ///
    /// # Errors
    /// Those of [`path`].
    pub(super) fn with_folder(named: Option<&Path>) -> Result<Self> {
        Ok(Self {
            path: path(named)?,
            makes_folder: true,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file. A link stays, and the file that it leads to is written.
    ///
    /// # Errors
    /// [`ConfigCommandError::Folder`] and [`ConfigCommandError::Write`].
    pub(super) fn write(&self, text: &str) -> Result<()> {
        let folder = self.folder();
        if self.makes_folder {
            fs::create_dir_all(folder).map_err(|source| ConfigCommandError::Folder {
                folder: folder.to_owned(),
                source,
            })?;
        }
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        write_whole(&path, text).map_err(|source| ConfigCommandError::Write { source })
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }
}

/// The file that was named, or the default one.
///
/// # Errors
/// [`ConfigCommandError::NoHome`], and [`ConfigCommandError::Environment`].
pub(super) fn path(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) => Ok(path.to_owned()),
        None => {
            default_config_path(&Environment::from_process())?.ok_or(ConfigCommandError::NoHome)
        }
    }
}

/// The text of a file: JSON if its name ends in `.json`, else YAML. Entries that say nothing are
/// left out.
pub(super) fn render(record: Value, path: &Path) -> String {
    render_all(&without_absent(record), path)
}

/// The same, with every entry.
pub(super) fn render_all(record: &Value, path: &Path) -> String {
    match ConfigFormat::of(path) {
        ConfigFormat::Json => json::write(record),
        ConfigFormat::Yaml => yaml::write(record),
    }
}

fn without_absent(record: Value) -> Value {
    match record {
        Value::Map(mut entries) => {
            entries.retain(|_, value| !value.is_absent());
            Value::Map(entries)
        }
        other => other,
    }
}

fn write_whole(path: &Path, text: &str) -> accelerate_formats::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes())
        .map_err(|source| accelerate_formats::Error::Write {
            path: path.to_owned(),
            source,
        })?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_needs_its_folder_before_anything_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("absent/config.yaml");
        let error = Target::new(Some(&file)).unwrap_err();
        assert!(
            matches!(error, ConfigCommandError::FolderMissing { .. }),
            "{error}"
        );
        assert!(Target::new(Some(Path::new("config.yaml"))).is_ok());
    }

    #[test]
    fn folders_are_made_where_that_was_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/config.yaml");
        let target = Target::with_folder(Some(&file)).unwrap();
        target.write("x: 1\n").unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), "x: 1\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_leads_to_the_file_that_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Target::new(Some(&link)).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
    }

    #[test]
    fn the_name_decides_about_the_form() {
        let entries = [("use_cpu", Value::from(true)), ("gpu_ids", Value::Null)];
        let entries = entries.map(|(key, value)| (key.to_owned(), value));
        let record = Value::Map(entries.into());
        assert_eq!(
            render(record.clone(), Path::new("a.yaml")),
            "use_cpu: true\n"
        );
        assert_eq!(render(record.clone(), Path::new("a")), "use_cpu: true\n");
        let json = render(record, Path::new("a.json"));
        assert_eq!(json, "{\n  \"use_cpu\": true\n}\n");
    }
}
