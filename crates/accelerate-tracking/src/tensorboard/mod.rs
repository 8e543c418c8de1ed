//! TensorBoard: event files.

mod event;
mod hparams;
mod record;

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::unix_seconds;
use crate::error::{Error, Result, io_error};
use crate::machine;
use crate::media::{Colour, Image};
use crate::tracker::{RunContext, Tracker};
use crate::value::{Value, Values};
use crate::yaml;

/// Its name.
pub(crate) const NAME: &str = "tensorboard";
/// How many pictures of one name stand in a row.
const GRID_COLUMNS: usize = 8;

/// Numbers the files of this process.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Writes event files into `LOGGING_DIR/PROJECT`, as TensorBoard reads them.
///
/// Numbers become scalars, texts texts, maps one series per key in a folder of its own; lists are dropped.
/// Each call reaches the file before it returns. Options at the start: `filename_suffix`, and
/// `purge_step`, from which on earlier events are forgotten.
///
/// # Source
/// `accelerate.tracking.TensorBoardTracker`. Differs: nested settings are flattened where the original
/// refuses them; writing does not wait for a queue, so `max_queue` and `flush_secs` change nothing.
#[derive(Debug, Default)]
pub struct TensorBoard {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    /// The folder of the project.
    folder: PathBuf,
    suffix: String,
    main: EventFile,
    /// The files of maps, by their folders.
    of_maps: BTreeMap<String, EventFile>,
}

/// An event file that is being written.
#[derive(Debug)]
struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Begins one in `folder`, with the event that says its version.
    fn create(folder: &Path, suffix: &str) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|source| io_error("make", folder, source))?;
        let now = unix_seconds();
        let name = format!(
            "events.out.tfevents.{:010.0}.{}.{}.{}{suffix}",
            now.floor(),
            machine::host(),
            std::process::id(),
            FILES.fetch_add(1, Ordering::Relaxed)
        );
        let path = folder.join(name);
        let file = File::create(&path).map_err(|source| io_error("make", &path, source))?;
        let mut file = Self { path, file };
        file.write(&event::version(now))?;
        Ok(file)
    }

    fn write(&mut self, payload: &[u8]) -> Result<()> {
        let end = self.file.stream_position();
        let end = end.map_err(|source| io_error("write to", &self.path, source))?;
        record::write(&mut self.file, payload).map_err(|source| {
            // Readers stop at half a record: the next one takes its place.
            let _ = self.file.set_len(end);
            let _ = self.file.seek(SeekFrom::Start(end));
            io_error("write to", &self.path, source)
        })
    }

    fn summary(&mut self, step: Option<i64>, values: &[event::SummaryValue]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.write(&event::summary(unix_seconds(), step, values))
    }
}

impl TensorBoard {
    /// A tracker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder of the project's event files, once it has begun.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.open.as_ref().map(|open| open.folder.as_path())
    }

    /// Writes how values are spread; those that are not finite are left out.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or [`Error::Io`] if it cannot be written.
    pub fn log_histogram(&mut self, name: &str, values: &[f64], step: Option<i64>) -> Result<()> {
        let histogram = event::histogram(name, values);
        self.running()?.main.summary(step, &[histogram])
    }

    fn running(&mut self) -> Result<&mut Open> {
        self.open.as_mut().ok_or(Error::NotRunning { name: NAME })
    }
}

impl Open {
    fn log_map(&mut self, name: &str, map: &Values, step: Option<i64>) -> Result<()> {
        for (key, value) in map.iter() {
            let Some(number) = value.as_number() else {
                continue;
            };
            // As the original names it; a key is not to lead elsewhere.
            let folder = format!(
                "{}_{}",
                name.replace('/', "_"),
                key.replace(['/', '\\'], "_")
            );
            if !self.of_maps.contains_key(&folder) {
                let file = EventFile::create(&self.folder.join(&folder), &self.suffix)?;
                self.of_maps.insert(folder.clone(), file);
            }
            if let Some(file) = self.of_maps.get_mut(&folder) {
                file.summary(step, &[event::scalar(name, number)])?;
            }
        }
        Ok(())
    }
}

impl Tracker for TensorBoard {
    fn name(&self) -> &str {
        NAME
    }

    fn requires_logging_directory(&self) -> bool {
        true
    }

    fn start(&mut self, run: &RunContext) -> Result<()> {
        let folder = run.require_logging_dir(NAME)?.join(&run.project);
        let suffix = match run.options.get("filename_suffix") {
            Some(Value::Text(suffix)) => suffix.replace(['/', '\\'], "_"),
            _ => String::new(),
        };
        let mut main = EventFile::create(&folder, &suffix)?;
        if let Some(Value::Int(step)) = run.options.get("purge_step") {
            main.write(&event::purge(unix_seconds(), *step))?;
        }
        self.open = Some(Open {
            folder,
            suffix,
            main,
            of_maps: BTreeMap::new(),
        });
        Ok(())
    }

    fn store_init_configuration(&mut self, values: &Values) -> Result<()> {
        let open = self.running()?;
        let of_now = || open.folder.join(format!("{:.6}", unix_seconds()));
        EventFile::create(&of_now(), &open.suffix)?.summaries(hparams::summaries(values)?)?;
        let folder = of_now();
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        let path = folder.join("hparams.yml");
        fs::write(&path, yaml::document(values)).map_err(|source| io_error("write", &path, source))
    }

    fn log(&mut self, values: &Values, step: Option<i64>, _options: &Values) -> Result<()> {
        let open = self.running()?;
        let mut plain = Vec::with_capacity(values.len());
        for (name, value) in values.iter() {
            match value {
                Value::Text(text) => plain.push(event::text(name, text)),
                Value::Map(map) => open.log_map(name, map, step)?,
                other => plain.extend(other.as_number().map(|number| event::scalar(name, number))),
            }
        }
        open.main.summary(step, &plain)
    }

    fn log_images(
        &mut self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        _options: &Values,
    ) -> Result<()> {
        let open = self.running()?;
        for (name, images) in images {
            if let Some(grid) = grid(images)? {
                open.main.summary(step, &[event::image(name, &grid)?])?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl EventFile {
    fn summaries<const COUNT: usize>(
        &mut self,
        values: [event::SummaryValue; COUNT],
    ) -> Result<()> {
        values
            .into_iter()
            .try_for_each(|value| self.summary(None, &[value]))
    }
}

/// Several pictures as one, in rows of eight; none for none.
///
/// # Errors
/// [`Error::Value`] if they differ in size or kind.
fn grid(images: &[Image]) -> Result<Option<Image>> {
    let Some(first) = images.first() else {
        return Ok(None);
    };
    if images.len() == 1 {
        return Ok(Some(first.clone()));
    }
    let shape = |image: &Image| (image.width(), image.height(), image.colour());
    if let Some(other) = images.iter().find(|image| shape(image) != shape(first)) {
        return Err(Error::Value {
            name: "images".to_owned(),
            expected: "pictures of one size and kind under one name",
            found: format!("{:?} beside {:?}", shape(other), shape(first)),
        });
    }
    let columns = images.len().min(GRID_COLUMNS);
    let rows = images.len().div_ceil(columns);
    let row_bytes = usize::from(first.colour().channels()) * first.width() as usize;
    let height = first.height() as usize;
    let mut pixels = Vec::with_capacity(row_bytes * columns * height * rows);
    for row in images.chunks(columns) {
        for line in 0..height {
            for column in 0..columns {
                let start = line * row_bytes;
                let of_image = row.get(column).map(Image::pixels);
                match of_image.and_then(|pixels| pixels.get(start..start + row_bytes)) {
                    Some(line) => pixels.extend_from_slice(line),
                    // The place of a picture that is not there is black.
                    None => pixels.resize(pixels.len() + row_bytes, 0),
                }
            }
        }
    }
    let wide =
        |side: u32, times: usize| side.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
    let (width, height) = (wide(first.width(), columns), wide(first.height(), rows));
    let colour: Colour = first.colour();
    Image::new(width, height, colour, pixels).map(Some)
}

#[cfg(test)]
mod tests;
