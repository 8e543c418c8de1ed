//! The file of summaries beside a long file of metrics.
//!
//! Records follow one another: the length of the payload as `u32`, the payload, the CRC-32 of the
//! payload as `u32`; all numbers little-endian. The first byte of a payload says what it is: 1 the version, 2 the
//! name of the next series, 3 a block. Reading stops at the first record that is not whole.

use std::path::Path;

use indexmap::IndexSet;

use super::summary::{Block, Point, SeriesSummary, Summary};

/// The version of this file's format.
const VERSION: u32 = 1;
const KIND_VERSION: u8 = 1;
const KIND_NAME: u8 = 2;
const KIND_BLOCK: u8 = 3;

/// The record that begins the file.
pub(super) fn version_record() -> Vec<u8> {
    record(KIND_VERSION, |payload| {
        payload.extend_from_slice(&VERSION.to_le_bytes());
    })
}

/// The record of a new series.
pub(super) fn name_record(name: &str) -> Vec<u8> {
    record(KIND_NAME, |payload| {
        payload.extend_from_slice(name.as_bytes())
    })
}

/// The record of a block.
pub(super) fn block_record(block: &Block) -> Vec<u8> {
    record(KIND_BLOCK, |payload| {
        for number in [block.offset, block.bytes, block.first_line] {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        payload.extend_from_slice(&block.lines.to_le_bytes());
        payload.extend_from_slice(&block.min_step.to_le_bytes());
        payload.extend_from_slice(&block.max_step.to_le_bytes());
        for (number, series) in &block.series {
            payload.extend_from_slice(&number.to_le_bytes());
            payload.extend_from_slice(&series.count.to_le_bytes());
            for point in [series.min, series.max, series.last] {
                payload.extend_from_slice(&point.step.to_le_bytes());
                payload.extend_from_slice(&point.seconds.to_le_bytes());
                payload.extend_from_slice(&point.value.to_le_bytes());
            }
        }
    })
}

fn record(kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut record = vec![0; 4];
    record.push(kind);
    fill(&mut record);
    let payload = record.get(4..).unwrap_or_default();
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let sum = crc32fast::hash(payload);
    if let Some(head) = record.get_mut(..4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
    record.extend_from_slice(&sum.to_le_bytes());
    record
}

/// Reads the summaries of a file of metrics that has `metrics_bytes` bytes now.
///
/// Nothing comes back if the index is absent, of another version, or does not fit the metrics: then
/// they are read themselves.
pub(super) fn read(path: &Path, metrics_bytes: u64) -> Option<Summary> {
    let bytes = std::fs::read(path).ok()?;
    let mut rest = bytes.as_slice();
    let version = Cursor(next_record(&mut rest)?.strip_prefix(&[KIND_VERSION])?).u32()?;
    if version != VERSION {
        return None;
    }
    let mut names = IndexSet::new();
    let mut blocks: Vec<Block> = Vec::new();
    while let Some(payload) = next_record(&mut rest) {
        match payload.split_first()? {
            (&KIND_NAME, name) => {
                names.insert(std::str::from_utf8(name).ok()?.to_owned());
            }
            (&KIND_BLOCK, block) => {
                let block = read_block(Cursor(block), names.len())?;
                let expected = blocks.last().map_or((0, 0), |last| {
                    (last.end(), last.first_line + u64::from(last.lines))
                });
                if (block.offset, block.first_line) != expected || block.end() > metrics_bytes {
                    return None;
                }
                blocks.push(block);
            }
            // A later version adds what this one can do without.
            _ => {}
        }
    }
    Some(Summary::resume(names, blocks))
}

/// The next payload that is whole.
fn next_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (payload, after) = after.split_at_checked(length)?;
    let (sum, after) = after.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*sum) != crc32fast::hash(payload) {
        return None;
    }
    *rest = after;
    Some(payload)
}

fn read_block(mut bytes: Cursor<'_>, names: usize) -> Option<Block> {
    let mut block = Block {
        offset: bytes.u64()?,
        bytes: bytes.u64()?,
        first_line: bytes.u64()?,
        lines: bytes.u32()?,
        min_step: bytes.i64()?,
        max_step: bytes.i64()?,
        series: Vec::new(),
    };
    while !bytes.0.is_empty() {
        let number = bytes.u32()?;
        let known = usize::try_from(number).is_ok_and(|number| number < names);
        let ascends = block.series.last().is_none_or(|(last, _)| *last < number);
        if !known || !ascends {
            return None;
        }
        let summary = SeriesSummary {
            count: bytes.u32()?,
            min: bytes.point()?,
            max: bytes.point()?,
            last: bytes.point()?,
        };
        block.series.push((number, summary));
    }
    Some(block)
}

/// Numbers, one after another.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (number, rest) = self.0.split_first_chunk::<BYTES>()?;
        self.0 = rest;
        Some(*number)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn point(&mut self) -> Option<Point> {
        Some(Point {
            step: self.i64()?,
            seconds: self.take().map(f64::from_le_bytes)?,
            value: self.take().map(f64::from_le_bytes)?,
        })
    }
}
