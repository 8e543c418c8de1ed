//! Folders as zip archives.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use accelerate_formats::AtomicFile;
use rawzip::ZipArchiveWriter;

use crate::error::{Result, io_error};

/// Packs all files below `folder` into the archive at `target`, uncompressed, by their paths relative to
/// the folder. The archive is whole or absent.
pub(crate) fn pack(folder: &Path, target: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(folder, &mut files).map_err(|source| io_error("look into", folder, source))?;
    files.sort();
    let mut archive = ZipArchiveWriter::new(AtomicFile::create(target)?);
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        let name: Vec<String> = name
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        add(&mut archive, &name.join("/"), &path)
            .map_err(|source| io_error("pack", &path, source))?;
    }
    let file = archive
        .finish()
        .map_err(|source| io_error("write", target, io::Error::other(source)))?;
    Ok(file.commit()?)
}

fn add(archive: &mut ZipArchiveWriter<AtomicFile>, name: &str, path: &Path) -> io::Result<()> {
    let (mut entry, config) = archive.new_file(name).start().map_err(io::Error::other)?;
    let mut writer = config.wrap(&mut entry);
    io::copy(&mut File::open(path)?, &mut writer)?;
    writer.flush()?;
    let (_, descriptor) = writer.finish().map_err(io::Error::other)?;
    entry.finish(descriptor).map_err(io::Error::other)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Names and contents of an archive.
#[cfg(test)]
pub(crate) fn entries(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let archive = rawzip::ZipArchive::from_slice(&bytes).unwrap();
    let mut entries = archive.entries();
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().unwrap() {
        let name = entry
            .file_path()
            .try_normalize()
            .unwrap()
            .as_ref()
            .to_owned();
        let content = archive
            .get_entry(entry.wayfinder())
            .unwrap()
            .data()
            .to_vec();
        found.push((name, content));
    }
    found
}
