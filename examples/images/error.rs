//! What can be wrong with images.

use std::io;
use std::path::PathBuf;

/// Why images cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImagesError {
    /// A file or folder cannot be read.
    #[error(
        "cannot read `{}`; give a folder with one folder of images for each class, or the digits \
         that `cargo xtask setup` fetches",
        path.display()
    )]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line of the digits is not of the form that is needed.
    #[error(
        "`{}` line {line}: expected 64 values within 0..=16 and a digit, divided by commas",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A folder has no classes to tell apart.
    #[error(
        "`{}` holds {found} classes with images, needs two or more: a folder for each, with \
         `.png`, `.jpg` or `.jpeg` files",
        path.display()
    )]
    Classes {
        /// The folder.
        path: PathBuf,
        /// How many classes there are.
        found: usize,
    },
    /// A file is no image that can be read.
    #[error("cannot read the image `{}`", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: image::ImageError,
    },
    /// Too few images to train and to evaluate.
    #[error(
        "{found} images cannot be split with a share of {share} held out: a part would be empty"
    )]
    TooFew {
        /// How many there are.
        found: usize,
        /// The share that was asked for.
        share: f64,
    },
}
