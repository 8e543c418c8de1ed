//! Reads the little of an ELF shared library that the loader would: which libraries it needs, where
//! it looks for them, and which C++ ABI its symbols follow.
//!
//! Only 64-bit little-endian files are read, the only kind libtorch comes in. Every offset is taken
//! as untrusted: reads outside the file and absurd sizes are errors.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How a C++ library spells `std::string`, which must be one way in everything that is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CxxAbi {
    /// The ABI since GCC 5, `_GLIBCXX_USE_CXX11_ABI=1`: what we need.
    Cxx11,
    /// The older one, `_GLIBCXX_USE_CXX11_ABI=0`.
    PreCxx11,
}

impl fmt::Display for CxxAbi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cxx11 => "C++11 (`_GLIBCXX_USE_CXX11_ABI=1`)",
            Self::PreCxx11 => "pre-C++11 (`_GLIBCXX_USE_CXX11_ABI=0`)",
        })
    }
}

const HEADER_LEN: usize = 64;
const SEGMENT_LEN: usize = 56;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const NEEDED: u64 = 1;
const STRING_TABLE: u64 = 5;
const STRING_TABLE_LEN: u64 = 10;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;
const MAX_DYNAMIC_LEN: u64 = 1 << 20;
const MAX_STRINGS_LEN: u64 = 1 << 28;
const MAX_NAME_LEN: u64 = 1 << 16;

/// The dynamic section of a shared library.
#[derive(Debug)]
pub(super) struct SharedObject {
    file: File,
    machine: u16,
    strings_at: u64,
    strings_len: u64,
    entries: Vec<(u64, u64)>,
}

/// A stretch of the file that is mapped into memory.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    len: u64,
}

impl SharedObject {
    /// Opens a library and reads its dynamic section, not the rest, however large it is.
    ///
    /// # Errors
    /// Kind `InvalidData` if this is no ELF library or if the file ends before its content does.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let file_len = file.metadata()?.len();
        let header = read_at(&mut file, 0, HEADER_LEN as u64)
            .map_err(|_| damaged("it is too short for a library"))?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(damaged("it is no 64-bit ELF library"));
        }
        // The table of sections is the last thing in a library, if it has one.
        let sections_len = u64::from(u16_at(&header, 58)) * u64::from(u16_at(&header, 60));
        if u64_at(&header, 40)
            .checked_add(sections_len)
            .is_none_or(|end| end > file_len)
        {
            return Err(cut_off());
        }
        let segments = segments(&mut file, &header, file_len)?;
        let dynamic = segments
            .iter()
            .find(|segment| segment.kind == DYNAMIC)
            .filter(|segment| segment.len <= MAX_DYNAMIC_LEN)
            .ok_or_else(|| damaged("it has no dynamic section"))?;
        let entries: Vec<(u64, u64)> = read_at(&mut file, dynamic.offset, dynamic.len)?
            .chunks_exact(16)
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .take_while(|(tag, _)| *tag != 0)
            .collect();
        let value = |wanted| {
            entries
                .iter()
                .find(|(tag, _)| *tag == wanted)
                .map(|(_, value)| *value)
        };
        let strings_at = value(STRING_TABLE)
            .and_then(|address| file_offset(&segments, address))
            .ok_or_else(|| damaged("its names cannot be found"))?;
        Ok(Self {
            machine: u16_at(&header, 18),
            strings_at,
            strings_len: value(STRING_TABLE_LEN).unwrap_or(0),
            entries,
            file,
        })
    }

    /// The target architecture in cargo's name, if it is one of those libtorch is built for.
    pub(super) fn arch(&self) -> Option<&'static str> {
        match self.machine {
            62 => Some("x86_64"),
            183 => Some("aarch64"),
            _ => None,
        }
    }

    /// The libraries that the loader must find before it can load this one.
    pub(super) fn needed(&mut self) -> io::Result<Vec<String>> {
        self.values_of(NEEDED)
    }

    /// The folders in which this library itself makes the loader look, still with `$ORIGIN`.
    pub(super) fn search_path(&mut self) -> io::Result<Vec<String>> {
        let mut lists = self.values_of(RUNPATH)?;
        if lists.is_empty() {
            lists = self.values_of(RPATH)?;
        }
        Ok(lists
            .iter()
            .flat_map(|list| list.split(':'))
            .filter(|dir| !dir.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// The C++ ABI, told by how the names of its symbols spell `std::string`.
    pub(super) fn cxx_abi(&mut self) -> io::Result<CxxAbi> {
        if self.strings_len > MAX_STRINGS_LEN {
            return Err(damaged("its table of names has an absurd size"));
        }
        let names = read_at(&mut self.file, self.strings_at, self.strings_len)?;
        let mark = b"St7__cxx1112basic_string";
        let new = names.windows(mark.len()).any(|window| window == mark);
        Ok(if new { CxxAbi::Cxx11 } else { CxxAbi::PreCxx11 })
    }

    fn values_of(&mut self, tag: u64) -> io::Result<Vec<String>> {
        let offsets: Vec<u64> = self
            .entries
            .iter()
            .filter(|entry| entry.0 == tag)
            .map(|entry| entry.1)
            .collect();
        offsets
            .into_iter()
            .map(|offset| self.string(offset))
            .collect()
    }

    fn string(&mut self, offset: u64) -> io::Result<String> {
        let left = self
            .strings_len
            .checked_sub(offset)
            .ok_or_else(|| damaged("a name lies outside its table"))?;
        let bytes = read_at(
            &mut self.file,
            self.strings_at + offset,
            left.min(MAX_NAME_LEN),
        )?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// Reads the table of segments, each of which must lie inside the file.
fn segments(file: &mut File, header: &[u8], file_len: u64) -> io::Result<Vec<Segment>> {
    if usize::from(u16_at(header, 54)) != SEGMENT_LEN {
        return Err(damaged("its table of segments has an unknown form"));
    }
    let table_len = u64::from(u16_at(header, 56)) * SEGMENT_LEN as u64;
    let table = read_at(file, u64_at(header, 32), table_len)?;
    let segments: Vec<Segment> = table
        .chunks_exact(SEGMENT_LEN)
        .map(|entry| Segment {
            kind: u32_at(entry, 0),
            offset: u64_at(entry, 8),
            address: u64_at(entry, 16),
            len: u64_at(entry, 32),
        })
        .collect();
    for segment in segments
        .iter()
        .filter(|segment| matches!(segment.kind, LOAD | DYNAMIC))
    {
        let end = segment.offset.checked_add(segment.len);
        if end.is_none_or(|end| end > file_len) {
            return Err(cut_off());
        }
    }
    Ok(segments)
}

/// Where in the file the byte lies that is loaded at `address`.
fn file_offset(segments: &[Segment], address: u64) -> Option<u64> {
    segments
        .iter()
        .filter(|segment| segment.kind == LOAD)
        .find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.len).then(|| segment.offset + within)
        })
}

fn read_at(file: &mut File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(len).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < len {
        return Err(cut_off());
    }
    Ok(bytes)
}

fn cut_off() -> io::Error {
    damaged("the file ends before its content does")
}

fn damaged(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn reads_the_program_that_runs_this_test() {
        let mut me = SharedObject::open(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(me.arch(), Some(std::env::consts::ARCH));
        let needed = me.needed().unwrap();
        assert!(
            needed.iter().any(|name| name.starts_with("libc.")),
            "{needed:?}"
        );
    }

    #[test]
    fn what_is_no_library_is_an_error_and_not_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let path = dir.path().join("cut");
        for (bytes, reason) in [
            (&b""[..], "too short"),
            (&[7; 200][..], "no 64-bit ELF"),
            (&whole[..whole.len() / 3], "ends before"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = SharedObject::open(&path).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
        for cut in [64, 100, 200, 400] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(SharedObject::open(&path).is_err(), "{cut} bytes");
        }
    }
}
