//! A series in as many points as a screen has room for.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::RangeInclusive;
use std::path::Path;

use super::line::NumbersLine;
use super::summary::{Block, Point, SeriesSummary, Summary};
use crate::error::{Result, io_error};

/// Points of a series, in the order in which they were logged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// The points.
    pub points: Vec<Point>,
    /// Whether values are missing between the points. The least and greatest of each stretch are there.
    pub is_thinned: bool,
}

/// The series `name` of `summary` between these steps.
pub(super) fn of(
    summary: &Summary,
    metrics: &Path,
    name: &str,
    steps: &RangeInclusive<i64>,
    max_points: usize,
) -> Result<Curve> {
    let Some(number) = summary.number(name) else {
        return Ok(Curve::default());
    };
    let blocks: Vec<&Block> = summary
        .blocks()
        .filter(|block| block.min_step <= *steps.end() && block.max_step >= *steps.start())
        .collect();
    // Two points come of each block: coarser than half of what there is room for is not good enough.
    if blocks.len().saturating_mul(4) >= max_points {
        let pieces: Vec<SeriesSummary> = blocks
            .iter()
            .filter_map(|block| block.series(number).copied())
            .collect();
        let mut curve = thin(&pieces, max_points);
        curve.is_thinned |= pieces.iter().any(|piece| piece.count > 2);
        curve.points.retain(|point| steps.contains(&point.step));
        return Ok(curve);
    }
    let mut points = Vec::new();
    for block in blocks
        .into_iter()
        .filter(|block| block.series(number).is_some())
    {
        read_block(metrics, block, name, &mut points)?;
    }
    points.retain(|point| steps.contains(&point.step));
    if points.len() <= max_points {
        return Ok(Curve {
            points,
            is_thinned: false,
        });
    }
    let pieces: Vec<SeriesSummary> = points.into_iter().map(SeriesSummary::of).collect();
    let mut curve = thin(&pieces, max_points);
    curve.is_thinned = true;
    Ok(curve)
}

/// Two points for each of so many stretches that `max_points` hold them.
fn thin(pieces: &[SeriesSummary], max_points: usize) -> Curve {
    let stretches = (max_points / 2).max(1);
    let length = pieces.len().div_ceil(stretches).max(1);
    let mut curve = Curve {
        points: Vec::with_capacity(2 * stretches),
        is_thinned: length > 1,
    };
    for stretch in pieces.chunks(length) {
        let mut merged: Option<SeriesSummary> = None;
        for piece in stretch {
            match &mut merged {
                Some(merged) => merged.merge(piece),
                None => merged = Some(*piece),
            }
        }
        if let Some(merged) = merged {
            curve.points.extend(in_order(&merged));
        }
    }
    // What a run has come to is looked at most.
    if let Some(last) = pieces.last().map(|piece| piece.last)
        && curve
            .points
            .last()
            .is_some_and(|point| point.step != last.step)
    {
        curve.points.push(last);
    }
    curve
}

fn in_order(series: &SeriesSummary) -> impl Iterator<Item = Point> {
    let (min, max) = (series.min, series.max);
    let min_first = (min.step, min.seconds) <= (max.step, max.seconds);
    let (first, second) = if min_first { (min, max) } else { (max, min) };
    let second = Some(second).filter(|second| second.step != first.step);
    std::iter::once(first).chain(second)
}

fn read_block(metrics: &Path, block: &Block, name: &str, points: &mut Vec<Point>) -> Result<()> {
    let failed = |source| io_error("read", metrics, source);
    let mut file = File::open(metrics).map_err(failed)?;
    file.seek(SeekFrom::Start(block.offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(block.bytes)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let first_line = i64::try_from(block.first_line).unwrap_or(i64::MAX);
    for (number, line) in (first_line..).zip(bytes.split(|byte| *byte == b'\n')) {
        let Ok(line) = serde_json::from_slice::<NumbersLine<'_>>(line) else {
            continue;
        };
        let values = line.values.0.iter().filter(|(found, _)| found == name);
        points.extend(values.map(|(_, value)| Point {
            step: line.step.unwrap_or(number),
            seconds: line.t,
            value: *value,
        }));
    }
    Ok(())
}
