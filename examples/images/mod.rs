//! Labelled images: where they come from, how they are changed, and how they become a batch.

mod batch;
mod digits;
mod error;
mod folder;
mod transform;

use std::path::Path;
use std::sync::Arc;

use accelerate::data::Dataset;
use accelerate::{Error, Result};
use image::RgbImage;

pub use self::batch::ImageBatches;
pub use self::error::ImagesError;
pub use self::transform::Transform;

/// An image and the number of its class.
pub type LabelledImage = (RgbImage, i64);

/// Images with labels.
///
/// Digits are held in memory; those of a folder are read when they are asked for, in the loader's
/// worker threads. A clone shares them.
#[derive(Debug, Clone)]
pub struct Images {
    sources: Arc<Vec<Source>>,
    /// Which of the sources these are, in order.
    chosen: Vec<usize>,
    classes: Arc<Vec<String>>,
    transform: Transform,
}

/// Where one image comes from.
#[derive(Debug)]
struct Source {
    pixels: Pixels,
    class: i64,
}

#[derive(Debug)]
enum Pixels {
    InMemory(RgbImage),
    File(std::path::PathBuf),
}

impl Images {
    /// The handwritten digits of `digits.csv.gz`, where `path` is that file or its folder; else
    /// the images of `path/CLASS/*.png` and `.jpg`.
    ///
    /// # Errors
    /// [`ImagesError`] naming the file or folder, and the line.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ImagesError> {
        let path = path.as_ref();
        let file = if path.is_dir() {
            path.join(digits::FILE)
        } else {
            path.to_owned()
        };
        let (sources, classes) = if file.is_file() {
            digits::read(&file)?
        } else {
            folder::read(path)?
        };
        Ok(Self {
            chosen: (0..sources.len()).collect(),
            sources: Arc::new(sources),
            classes: Arc::new(classes),
            transform: Transform::default(),
        })
    }

    /// The names of the classes, by number.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The images but every `1 / share`-th, and these: training part, held-out part.
    ///
    /// # Errors
    /// [`ImagesError::TooFew`] if a part would be empty.
    pub fn split(self, share: f64) -> Result<(Self, Self), ImagesError> {
        // Number `k` of the held-out ones is the one at which `share` times the count passes `k`.
        let passed = |count: usize| (count as f64 * share) as usize;
        let (held_out, training): (Vec<usize>, Vec<usize>) = self
            .chosen
            .iter()
            .partition(|&&index| passed(index + 1) > passed(index));
        if held_out.is_empty() || training.is_empty() {
            return Err(ImagesError::TooFew {
                found: self.chosen.len(),
                share,
            });
        }
        let part = |chosen| Self {
            chosen,
            ..self.clone()
        };
        Ok((part(training), part(held_out)))
    }

    /// The same images, changed in this way each time one is asked for.
    #[must_use]
    pub fn with_transform(self, transform: Transform) -> Self {
        Self { transform, ..self }
    }
}

impl Dataset for Images {
    type Item = LabelledImage;

    fn len(&self) -> usize {
        self.chosen.len()
    }

    fn get(&self, index: usize) -> Result<LabelledImage> {
        let source = self
            .chosen
            .as_slice()
            .get(index)
            .and_then(|&chosen| self.sources.as_slice().get(chosen));
        let source = source.ok_or_else(|| Error::Argument {
            operation: "Images",
            expected: format!("an index below {}", self.chosen.len()),
            found: index.to_string(),
        })?;
        let image = match &source.pixels {
            Pixels::InMemory(image) => self.transform.apply(image),
            Pixels::File(path) => self
                .transform
                .apply(&folder::open(path).map_err(Error::data)?),
        };
        Ok((image, source.class))
    }
}

#[cfg(test)]
mod tests;
