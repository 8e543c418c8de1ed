//! Handwritten digits: 8x8 values from 0 to 16, and the digit.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use image::{Rgb, RgbImage};

use super::{ImagesError, Pixels, Source};

/// The name of the file that set-up fetches.
pub(super) const FILE: &str = "digits.csv.gz";
const SIDE: u32 = 8;
/// The value of full ink.
const FULL: u8 = 16;

/// Reads all digits, and names the classes.
pub(super) fn read(path: &Path) -> Result<(Vec<Source>, Vec<String>), ImagesError> {
    let unreadable = |source| ImagesError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut digits = Vec::new();
    for (index, line) in BufReader::new(GzDecoder::new(file)).lines().enumerate() {
        let line = line.map_err(unreadable)?;
        digits.push(parse(&line).ok_or_else(|| ImagesError::Line {
            path: path.to_owned(),
            line: index + 1,
        })?);
    }
    Ok((digits, (0..10).map(|digit| digit.to_string()).collect()))
}

fn parse(line: &str) -> Option<Source> {
    let values: Vec<u8> = line
        .split(',')
        .map(|value| value.trim().parse().ok())
        .collect::<Option<_>>()?;
    let (&digit, values) = values.split_last()?;
    let fits = values.len() == (SIDE * SIDE) as usize && values.iter().all(|&v| v <= FULL);
    if !fits || digit > 9 {
        return None;
    }
    let image = RgbImage::from_fn(SIDE, SIDE, |x, y| {
        let ink = values[(y * SIDE + x) as usize];
        Rgb([(u16::from(ink) * 255 / u16::from(FULL)) as u8; 3])
    });
    Some(Source {
        pixels: Pixels::InMemory(image),
        class: i64::from(digit),
    })
}
