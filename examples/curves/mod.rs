//! Training curves as a picture.

mod picture;
mod thinning;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use accelerate::checkpoint::AtomicFile;

/// Lines over training steps, one panel below the other, for an SVG file.
///
/// The part of a line's name before a `/` is its panel: `loss/training` and `loss/evaluation`
/// share the panel `loss`; a name without `/` has a panel of its own.
///
/// ```
/// use accelerate_examples::curves::Curves;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("curves.svg");
/// Curves::new("digits")
///     .line("loss", &[(1, 2.3), (2, 1.9), (3, 1.2)])
///     .line("accuracy", &[(3, 0.62)])
///     .save(&path)?;
/// assert!(std::fs::read_to_string(&path)?.contains("accuracy"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    title: String,
    panels: Vec<Panel>,
}

/// Lines that share their axes.
#[derive(Debug, Clone, PartialEq)]
struct Panel {
    name: String,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq)]
struct Line {
    name: String,
    points: Vec<(u64, f64)>,
}

impl Curves {
    /// A picture without lines.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            panels: Vec::new(),
        }
    }

    /// Adds a line through values at steps, in the order of the steps.
    ///
    /// A value that is no finite number leaves a gap. A line of very many points is thinned; its
    /// lowest and highest values stay.
    #[must_use]
    pub fn line(mut self, name: &str, points: &[(u64, f64)]) -> Self {
        let (panel, line) = name.split_once('/').unwrap_or((name, name));
        let line = Line {
            name: line.to_owned(),
            points: thinning::thinned(points),
        };
        match self.panels.iter_mut().find(|known| known.name == panel) {
            Some(known) => known.lines.push(line),
            None => self.panels.push(Panel {
                name: panel.to_owned(),
                lines: vec![line],
            }),
        }
        self
    }

    /// Writes the picture as an SVG file, whole or not at all.
    ///
    /// # Errors
    /// [`CurvesError::Draw`] if there is nothing to draw, [`CurvesError::Write`] if the file cannot
    /// be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CurvesError> {
        let svg = picture::draw(self)?;
        let path = path.as_ref();
        write(path, &svg).map_err(|source| CurvesError::Write {
            path: path.to_owned(),
            source,
        })
    }
}

fn write(path: &Path, svg: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(svg.as_bytes())?;
    Ok(file.commit()?)
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CurvesError {
    /// The picture cannot be drawn.
    #[error("cannot draw the curves `{title}`: {reason}")]
    Draw {
        /// The title of the picture.
        title: String,
        /// Why.
        reason: String,
    },
    /// The file cannot be written.
    #[error("cannot write the curves to `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[cfg(test)]
mod tests;
