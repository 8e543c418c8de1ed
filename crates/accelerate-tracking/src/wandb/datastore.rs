//! The file of an offline run: records in chunks in blocks.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use crate::error::{Result, io_error};

/// What the file begins with: `:W&B`, a magic number and a version.
const HEADER: [u8; 7] = [0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0x00];
/// The length of a block; the header counts inside the first.
const BLOCK: usize = 32_768;
/// What stands before the data of a chunk: checksum, length, kind.
const CHUNK_HEADER: usize = 7;

/// Which part of a record a chunk holds.
#[derive(Clone, Copy)]
enum Part {
    Full = 1,
    First = 2,
    Middle = 3,
    Last = 4,
}

/// A file that records are added to.
#[derive(Debug)]
pub(super) struct Datastore {
    path: PathBuf,
    file: File,
    /// How many bytes of the block that is being filled are used.
    used: usize,
}

impl Datastore {
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        let failed = |source| io_error("make", &path, source);
        let mut file = File::create_new(&path).map_err(failed)?;
        file.write_all(&HEADER).map_err(failed)?;
        Ok(Self {
            path,
            file,
            used: HEADER.len(),
        })
    }

    /// Adds a record, by one call to the system.
    pub(super) fn write(&mut self, record: &[u8]) -> Result<()> {
        let (end, used) = (self.file.stream_position(), self.used);
        let end = end.map_err(|source| io_error("write to", &self.path, source))?;
        let mut bytes = Vec::with_capacity(record.len() + 2 * CHUNK_HEADER);
        let mut rest = record;
        let mut is_first = true;
        loop {
            let left = BLOCK - self.used;
            if left < CHUNK_HEADER {
                bytes.resize(bytes.len() + left, 0);
                self.used = 0;
                continue;
            }
            let room = left - CHUNK_HEADER;
            let (piece, after) = rest.split_at(room.min(rest.len()));
            let part = match (is_first, after.is_empty()) {
                (true, true) => Part::Full,
                (true, false) => Part::First,
                (false, false) => Part::Middle,
                (false, true) => Part::Last,
            };
            chunk(part, piece, &mut bytes);
            self.used = (self.used + CHUNK_HEADER + piece.len()) % BLOCK;
            is_first = false;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        self.file.write_all(&bytes).map_err(|source| {
            // Readers stop at half a record: the next one takes its place.
            let _ = self.file.set_len(end);
            let _ = self.file.seek(SeekFrom::Start(end));
            self.used = used;
            io_error("write to", &self.path, source)
        })
    }
}

fn chunk(part: Part, piece: &[u8], bytes: &mut Vec<u8>) {
    let part = part as u8;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&[part]);
    sum.update(piece);
    bytes.extend_from_slice(&sum.finalize().to_le_bytes());
    // A piece is shorter than a block.
    let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.push(part);
    bytes.extend_from_slice(piece);
}

/// The records of a file, put together again with every checksum checked.
#[cfg(test)]
pub(super) fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(bytes[..7], HEADER);
    let (mut at, mut found, mut open) = (7, Vec::new(), Vec::new());
    while at < bytes.len() {
        if BLOCK - at % BLOCK < CHUNK_HEADER {
            at = at.next_multiple_of(BLOCK);
            continue;
        }
        let length = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let body = &bytes[at + 6..at + 7 + length];
        let sum = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(sum, crc32fast::hash(body));
        open.extend_from_slice(&body[1..]);
        match body[0] {
            1 | 4 => found.push(std::mem::take(&mut open)),
            2 | 3 => {}
            other => panic!("a chunk of kind {other}"),
        }
        at += CHUNK_HEADER + length;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_a_plain_checksum() {
        let mut bytes = Vec::new();
        chunk(Part::Full, b"abc", &mut bytes);
        assert_eq!(bytes, [0xa9, 0x20, 0x9d, 0x53, 3, 0, 1, b'a', b'b', b'c']);
    }

    #[test]
    fn records_of_every_length_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.wandb");
        let mut store = Datastore::create(path.clone()).unwrap();
        // Around the ends of blocks: with room for a header alone, for less, and for none.
        let lengths = [
            0, 3, 32_700, 30, 32_754, 32_755, 1, 32_760, 32_761, 100_000, 5, 65_522, 1,
        ];
        let written: Vec<Vec<u8>> = (1..)
            .zip(lengths)
            .map(|(fill, length)| vec![fill; length])
            .collect();
        for record in &written {
            store.write(record).unwrap();
        }
        assert_eq!(records(&std::fs::read(path).unwrap()), written);
    }
}
