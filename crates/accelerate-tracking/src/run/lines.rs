//! Files of JSON lines that only grow: written line by line, and followed while they grow.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result, io_error};

/// How much is read at a time.
const CHUNK_BYTES: u64 = 4 << 20;

/// A file that is followed: each call gives the lines that have come since.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    offset: u64,
}

impl LineFile {
    /// Follows the file at `path` from its start. It need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::from_offset(path, 0)
    }

    /// Follows the file from this byte, at which a line begins.
    #[must_use]
    pub fn from_offset(path: impl Into<PathBuf>, offset: u64) -> Self {
        Self {
            path: path.into(),
            offset,
        }
    }

    /// Up to which byte its lines were read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Hands the lines that are whole now to `each`, without their ends, with the number of bytes they
    /// take with them.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is there and cannot be read.
    pub fn poll(&mut self, mut each: impl FnMut(&[u8], u64)) -> Result<()> {
        let failed = |source| io_error("read", &self.path, source);
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(failed)?,
        };
        let mut kept = Vec::new();
        file.seek(SeekFrom::Start(self.offset)).map_err(failed)?;
        loop {
            let read = (&mut file)
                .take(CHUNK_BYTES)
                .read_to_end(&mut kept)
                .map_err(failed)?;
            if read == 0 {
                return Ok(());
            }
            let mut rest = kept.as_slice();
            while let Some(at) = end_of_line(rest) {
                let (line, after) = rest.split_at(at);
                let bytes = line.len() as u64 + 1;
                each(line, bytes);
                self.offset += bytes;
                rest = after.get(1..).unwrap_or_default();
            }
            kept = rest.to_vec();
        }
    }
}

fn end_of_line(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// The lines of a file that are JSON of this type; others are left out.
pub(super) fn read_all<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let mut found = Vec::new();
    LineFile::new(path).poll(|line, _| found.extend(serde_json::from_slice(line).ok()))?;
    Ok(found)
}

/// A file that lines are added to, each by one call to the system.
#[derive(Debug)]
pub(crate) struct LineWriter {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
    /// Whether the last line may be there in part: the next one then begins on a line of its own.
    torn: bool,
}

impl LineWriter {
    /// Adds to the file at `path`, which is made if there is none.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(&path);
        Ok(Self {
            file: file.map_err(|source| io_error("open", &path, source))?,
            torn: ends_within_a_line(&path),
            path,
            line: Vec::new(),
        })
    }

    /// Adds a line; gives the number of bytes it takes.
    pub(crate) fn write(&mut self, content: &impl Serialize) -> Result<u64> {
        self.line.clear();
        if self.torn {
            self.line.push(b'\n');
        }
        serde_json::to_writer(&mut self.line, content).map_err(|source| Error::Damaged {
            path: self.path.clone(),
            expected: "something that JSON can hold",
            source,
        })?;
        self.line.push(b'\n');
        let written = self.file.write_all(&self.line);
        self.torn = written.is_err();
        written.map_err(|source| io_error("write to", &self.path, source))?;
        Ok(self.line.len() as u64)
    }

    /// Whether something went wrong with the line before: what is written next takes more bytes than
    /// its own.
    pub(super) fn is_torn(&self) -> bool {
        self.torn
    }

    /// Waits until everything is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|source| io_error("write to", &self.path, source))
    }
}

fn ends_within_a_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        Ok(u8::from_le_bytes(byte))
    };
    last().is_ok_and(|byte| byte != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &mut LineFile) -> Vec<String> {
        let mut found = Vec::new();
        file.poll(|line, _| found.push(String::from_utf8(line.to_vec()).unwrap()))
            .unwrap();
        found
    }

    #[test]
    fn only_whole_lines_come_and_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut file = LineFile::new(&path);
        assert!(lines(&mut file).is_empty());
        std::fs::write(&path, "1\n2\n3").unwrap();
        assert_eq!(lines(&mut file), ["1", "2"]);
        std::fs::write(&path, "1\n2\n34\n").unwrap();
        assert_eq!(lines(&mut file), ["34"]);
        assert_eq!(file.offset(), 7);
    }

    #[test]
    fn a_writer_begins_anew_behind_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, "1\n{\"ha").unwrap();
        let mut writer = LineWriter::open(path.clone()).unwrap();
        assert!(writer.is_torn());
        writer.write(&2).unwrap();
        writer.write(&3).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n{\"ha\n2\n3\n");
        assert_eq!(read_all::<i64>(&path).unwrap(), [1, 2, 3]);
    }
}
