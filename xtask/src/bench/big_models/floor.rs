//! What no program can be faster than: bytes over the bandwidths of disk and memory.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::big_models::run::drop_from_cache;
use crate::failure::Failure;

/// How much is read at a time.
const BLOCK_BYTES: usize = 8 << 20;

/// How many numbers are added up, twice, to see how fast memory is: 256 MB for each thread.
const NUMBERS: usize = 32 << 20;

/// Bandwidths as measured, and how many bytes each token needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Floor {
    /// In bytes per second.
    pub(super) disk: f64,
    /// In bytes per second, by two threads that read.
    pub(super) memory: f64,
    /// All weights.
    pub(super) bytes: f64,
    /// The weights on disk.
    pub(super) bytes_on_disk: f64,
}

impl Floor {
    /// Reads the weights from the disk, and memory.
    pub(super) fn measure(files: &[PathBuf], map: &Path) -> Result<Self, Failure> {
        drop_from_cache(files)?;
        let (bytes, seconds) = read_all(files)?;
        let share = share_on_disk(map)?;
        Ok(Self {
            disk: bytes / seconds,
            memory: memory_bandwidth(),
            bytes,
            bytes_on_disk: bytes * share,
        })
    }

    /// The least seconds from a cold start to the first token.
    pub(super) fn cold_start(&self) -> f64 {
        self.bytes / self.disk
    }

    /// The least seconds for a token where everything is in memory, cached or not.
    pub(super) fn warm_token(&self) -> f64 {
        self.bytes / self.memory
    }

    /// The least seconds for a token where the part on disk is read for each, beside the rest.
    pub(super) fn limited_token(&self) -> f64 {
        (self.bytes_on_disk / self.disk).max(self.warm_token())
    }
}

/// How many bytes the files have, and how long reading them took.
pub(super) fn read_all(files: &[PathBuf]) -> Result<(f64, f64), Failure> {
    let start = Instant::now();
    let mut block = vec![0; BLOCK_BYTES];
    let mut bytes = 0.0;
    for file in files {
        bytes += read(file, &mut block).map_err(|error| {
            Failure::because(format!("cannot read `{}`", file.display()), error)
        })?;
    }
    Ok((bytes, start.elapsed().as_secs_f64()))
}

fn read(file: &Path, block: &mut [u8]) -> io::Result<f64> {
    let mut from = File::open(file)?;
    let mut bytes = 0.0;
    loop {
        match from.read(block)? {
            0 => return Ok(bytes),
            count => bytes += count as f64,
        }
    }
}

/// The part of the weights that a device map puts on disk: layers are alike and nearly all.
fn share_on_disk(map: &Path) -> Result<f64, Failure> {
    let failed = || Failure::new(format!("`{}` is no device map", map.display()));
    let text = fs::read_to_string(map)
        .map_err(|error| Failure::because(format!("cannot read `{}`", map.display()), error))?;
    let value: Value = serde_json::from_str(&text).map_err(|_| failed())?;
    let places = value.as_object().ok_or_else(failed)?;
    let layers = places.iter().filter(|(name, _)| name.contains(".layers."));
    let on_disk = layers
        .clone()
        .filter(|(_, place)| **place == "disk")
        .count();
    // The embeddings and the head are an eighth of this model.
    Ok(LAYERS_SHARE * on_disk as f64 / layers.count().max(1) as f64)
}

/// The layers' part of the Llama's weights.
const LAYERS_SHARE: f64 = 0.8736;

/// Bytes per second that two threads read together.
fn memory_bandwidth() -> f64 {
    let numbers = vec![1u64; 2 * NUMBERS];
    let start = Instant::now();
    thread::scope(|scope| {
        for half in numbers.chunks(NUMBERS) {
            scope.spawn(move || {
                black_box(half.iter().fold(0u64, |sum, one| sum.wrapping_add(*one)))
            });
        }
    });
    (numbers.len() * size_of::<u64>()) as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_needs_memory_and_what_is_on_disk() {
        let floor = Floor {
            disk: 10.0,
            memory: 100.0,
            bytes: 200.0,
            bytes_on_disk: 50.0,
        };
        assert_eq!(floor.cold_start(), 20.0);
        assert_eq!(floor.warm_token(), 2.0);
        assert_eq!(floor.limited_token(), 5.0);
    }

    #[test]
    fn files_are_read_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        fs::write(&paths[0], vec![0; BLOCK_BYTES + 3]).unwrap();
        fs::write(&paths[1], b"").unwrap();
        let (bytes, _) = read_all(&paths).unwrap();
        assert_eq!(bytes, (BLOCK_BYTES + 3) as f64);
        let map = folder.path().join("map");
        fs::write(
            &map,
            r#"{"m.layers.0": "cpu", "m.layers.1": "disk", "lm_head": "disk"}"#,
        )
        .unwrap();
        assert_eq!(share_on_disk(&map).unwrap(), LAYERS_SHARE / 2.0);
        fs::write(&map, "[]").unwrap();
        assert!(share_on_disk(&map).is_err());
    }
}
