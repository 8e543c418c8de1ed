//! Pictures and tables that are logged beside numbers.

use crate::error::{Error, Result};
use crate::value::Value;

/// What the bytes of a pixel mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// One byte of brightness.
    Grey,
    /// Red, green and blue.
    Rgb,
    /// Red, green, blue and how opaque.
    Rgba,
}

impl Colour {
    /// The bytes of one pixel.
    #[must_use]
    pub fn channels(self) -> u8 {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

/// A picture of 8 bits a channel, row by row from the top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    width: u32,
    height: u32,
    colour: Colour,
    pixels: Vec<u8>,
    caption: Option<String>,
}

impl Image {
    /// A picture of these bytes: `height` rows of `width` pixels.
    ///
    /// # Errors
    /// [`Error::ImageSize`] if there are more or fewer bytes than it needs.
    pub fn new(width: u32, height: u32, colour: Colour, pixels: Vec<u8>) -> Result<Self> {
        let sides = [width, height].map(|side| usize::try_from(side).unwrap_or(usize::MAX));
        let expected = sides[0]
            .saturating_mul(sides[1])
            .saturating_mul(colour.channels().into());
        if pixels.len() != expected {
            return Err(Error::ImageSize {
                width,
                height,
                expected,
                found: pixels.len(),
            });
        }
        Ok(Self {
            width,
            height,
            colour,
            pixels,
            caption: None,
        })
    }

    /// The same with a text that stands below it.
    #[must_use]
    pub fn with_caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = Some(caption.into());
        self
    }

    /// Its width in pixels.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Its height in pixels.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// What the bytes of a pixel mean.
    #[must_use]
    pub fn colour(&self) -> Colour {
        self.colour
    }

    /// Its bytes, row by row.
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The text that stands below it.
    #[must_use]
    pub fn caption(&self) -> Option<&str> {
        self.caption.as_deref()
    }

    /// Packs it as a PNG file.
    ///
    /// # Errors
    /// [`Error::Png`] for a picture without pixels.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let failed = |source| Error::Png { source };
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(match self.colour {
            Colour::Grey => png::ColorType::Grayscale,
            Colour::Rgb => png::ColorType::Rgb,
            Colour::Rgba => png::ColorType::Rgba,
        });
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&self.pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(bytes)
    }
}

/// Rows of values under named columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table of these rows.
    ///
    /// # Errors
    /// [`Error::Table`] if a row has more or fewer cells than there are columns.
    pub fn new<C: Into<String>>(
        columns: impl IntoIterator<Item = C>,
        rows: Vec<Vec<Value>>,
    ) -> Result<Self> {
        let columns: Vec<String> = columns.into_iter().map(Into::into).collect();
        let expected = columns.len();
        match rows.iter().position(|row| row.len() != expected) {
            Some(row) => Err(Error::Table {
                row,
                expected,
                found: rows.get(row).map_or(0, Vec::len),
            }),
            None => Ok(Self { columns, rows }),
        }
    }

    /// The names of its columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Value>] {
        &self.rows
    }

    /// As JSON: `{"columns":[..],"data":[[..]]}`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "columns": self.columns, "data": self.rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_packed_with_its_pixels() {
        let image = Image::new(2, 1, Colour::Rgb, vec![1, 2, 3, 4, 5, 6]).unwrap();
        let packed = image.to_png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(packed))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, [1, 2, 3, 4, 5, 6]);
        assert_eq!((reader.info().width, reader.info().height), (2, 1));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let error = Image::new(2, 2, Colour::Grey, vec![0; 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an image of 2 by 2 needs 4 bytes, found 3"
        );
        let rows = vec![vec![Value::from(1)], vec![]];
        let error = Table::new(["a"], rows).unwrap_err();
        assert_eq!(
            error.to_string(),
            "row 1 of a table has 0 cells, but it has 1 columns"
        );
    }
}
