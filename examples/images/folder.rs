//! A folder with one folder of images for each class.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use image::{ImageReader, RgbImage};

use super::{ImagesError, Pixels, Source};

const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Finds all images and names the classes, both in the order of their names.
pub(super) fn read(path: &Path) -> Result<(Vec<Source>, Vec<String>), ImagesError> {
    let (mut sources, mut classes) = (Vec::new(), Vec::new());
    for folder in entries(path)?.into_iter().filter(|entry| entry.is_dir()) {
        let images: Vec<PathBuf> = entries(&folder)?
            .into_iter()
            .filter(|file| is_image(file))
            .collect();
        if images.is_empty() {
            continue;
        }
        let class = classes.len() as i64;
        classes.push(name_of(&folder));
        sources.extend(images.into_iter().map(|file| Source {
            pixels: Pixels::File(file),
            class,
        }));
    }
    if classes.len() < 2 {
        return Err(ImagesError::Classes {
            path: path.to_owned(),
            found: classes.len(),
        });
    }
    Ok((sources, classes))
}

/// Reads one image; what it really is decides, not its name.
pub(super) fn open(path: &Path) -> Result<RgbImage, ImagesError> {
    let read = || ImageReader::open(path)?.with_guessed_format()?.decode();
    let image = read().map_err(|source| ImagesError::Image {
        path: path.to_owned(),
        source,
    })?;
    Ok(image.into_rgb8())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, ImagesError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?;
        found.sort();
        Ok(found)
    };
    list().map_err(|source| ImagesError::Read {
        path: folder.to_owned(),
        source,
    })
}

fn is_image(file: &Path) -> bool {
    let ending = file.extension().unwrap_or_default().to_string_lossy();
    ENDINGS
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known))
        && file.is_file()
}

fn name_of(folder: &Path) -> String {
    folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
