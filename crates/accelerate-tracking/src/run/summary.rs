//! Many points in few: the minimum, maximum and last of each series in a block of lines.

use indexmap::IndexSet;

/// How many lines of `metrics.jsonl` are summed up together.
pub const LINES_PER_BLOCK: u32 = 128;

/// A value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The step it was logged at; the number of its line if it was logged without.
    pub step: i64,
    /// When it was logged, in seconds since the start of the run.
    pub seconds: f64,
    /// The value; it may be no number.
    pub value: f64,
}

/// What is known of a series in a block of lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesSummary {
    /// How many values there are.
    pub count: u32,
    /// The least that is finite; any value if none is.
    pub min: Point,
    /// The greatest that is finite; any value if none is.
    pub max: Point,
    /// The last.
    pub last: Point,
}

impl SeriesSummary {
    pub(super) fn of(point: Point) -> Self {
        Self {
            count: 1,
            min: point,
            max: point,
            last: point,
        }
    }

    fn add(&mut self, point: Point) {
        self.count = self.count.saturating_add(1);
        self.last = point;
        if !point.value.is_finite() {
            return;
        }
        if !self.min.value.is_finite() || point.value < self.min.value {
            self.min = point;
        }
        if !self.max.value.is_finite() || point.value > self.max.value {
            self.max = point;
        }
    }

    /// Of two pieces of one series, the later one last.
    pub(super) fn merge(&mut self, later: &Self) {
        let last = later.last;
        let count = self.count.saturating_add(later.count);
        self.add(later.min);
        self.add(later.max);
        self.last = last;
        self.count = count;
    }
}

/// Lines of `metrics.jsonl` that are summed up together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    /// Where its first line begins, in bytes.
    pub(super) offset: u64,
    /// The length of its lines, in bytes.
    pub(super) bytes: u64,
    /// The number of its first line, from 0.
    pub(super) first_line: u64,
    /// The number of its lines.
    pub(super) lines: u32,
    /// The least step in it.
    pub(super) min_step: i64,
    /// The greatest step in it.
    pub(super) max_step: i64,
    /// What is known of each series, by the series' number, ascending.
    pub(super) series: Vec<(u32, SeriesSummary)>,
}

impl Block {
    fn starting(offset: u64, first_line: u64) -> Self {
        Self {
            offset,
            bytes: 0,
            first_line,
            lines: 0,
            min_step: i64::MAX,
            max_step: i64::MIN,
            series: Vec::new(),
        }
    }

    /// What is known of the series of this number.
    pub(super) fn series(&self, number: u32) -> Option<&SeriesSummary> {
        let found = self.series.binary_search_by_key(&number, |(id, _)| *id);
        found
            .ok()
            .and_then(|at| self.series.get(at))
            .map(|(_, summary)| summary)
    }

    /// Where the next block begins, in bytes.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    fn add(&mut self, number: u32, point: Point) {
        match self.series.binary_search_by_key(&number, |(id, _)| *id) {
            Ok(at) => {
                if let Some((_, summary)) = self.series.get_mut(at) {
                    summary.add(point);
                }
            }
            Err(at) => self.series.insert(at, (number, SeriesSummary::of(point))),
        }
    }
}

/// A summary of all lines so far: finished blocks, and the one that is being filled.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    names: IndexSet<String>,
    blocks: Vec<Block>,
    open: Block,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            names: IndexSet::new(),
            blocks: Vec::new(),
            open: Block::starting(0, 0),
        }
    }
}

impl Summary {
    /// Goes on behind blocks that were read from an index.
    pub(super) fn resume(names: IndexSet<String>, blocks: Vec<Block>) -> Self {
        let (offset, line) = blocks.last().map_or((0, 0), |last| {
            (last.end(), last.first_line + u64::from(last.lines))
        });
        Self {
            names,
            blocks,
            open: Block::starting(offset, line),
        }
    }

    /// The names of all series, in the order of their first values.
    pub(super) fn names(&self) -> &IndexSet<String> {
        &self.names
    }

    /// The number of a series.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.names
            .get_index_of(name)
            .and_then(|at| u32::try_from(at).ok())
    }

    /// All blocks, the one that is being filled last.
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = &Block> {
        let open = Some(&self.open).filter(|open| open.lines > 0);
        self.blocks.iter().chain(open)
    }

    /// The block that was finished last.
    pub(super) fn last_finished(&self) -> Option<&Block> {
        self.blocks.last()
    }

    /// The blocks that are finished.
    pub(super) fn finished(&self) -> &[Block] {
        &self.blocks
    }

    /// Forgets the finished blocks: for a writer, who has them on disk.
    pub(super) fn forget_finished(&mut self) {
        self.blocks.clear();
    }

    /// The number of lines so far.
    pub(super) fn lines(&self) -> u64 {
        self.open.first_line + u64::from(self.open.lines)
    }

    /// How many bytes of lines are summed up.
    pub(super) fn end(&self) -> u64 {
        self.open.end()
    }

    /// Adds a value to the line that is being read.
    pub(super) fn value(&mut self, name: &str, point: Point) {
        let number = self.number(name).or_else(|| {
            let (at, _) = self.names.insert_full(name.to_owned());
            u32::try_from(at).ok()
        });
        if let Some(number) = number {
            self.open.add(number, point);
        }
    }

    /// Ends a line of `bytes` bytes; true if it finished a block.
    pub(super) fn line(&mut self, step: Option<i64>, bytes: u64) -> bool {
        let open = &mut self.open;
        if let Some(step) = step {
            open.min_step = open.min_step.min(step);
            open.max_step = open.max_step.max(step);
        }
        open.bytes += bytes;
        open.lines += 1;
        if open.lines < LINES_PER_BLOCK {
            return false;
        }
        let next = Block::starting(open.end(), open.first_line + u64::from(open.lines));
        self.blocks.push(std::mem::replace(open, next));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: i64, value: f64) -> Point {
        Point {
            step,
            seconds: 0.0,
            value,
        }
    }

    #[test]
    fn extremes_are_those_of_the_finite_values() {
        let mut series = SeriesSummary::of(point(0, f64::NAN));
        for (step, value) in [(1, 2.0), (2, -1.0), (3, f64::INFINITY), (4, f64::NAN)] {
            series.add(point(step, value));
        }
        assert_eq!((series.min.step, series.max.step, series.count), (2, 1, 5));
        assert_eq!(series.last.step, 4);
        let mut first = SeriesSummary::of(point(-2, 5.0));
        first.merge(&series);
        assert_eq!(
            (first.min.step, first.max.step, first.last.step),
            (2, -2, 4)
        );
        assert_eq!(first.count, 6);
    }

    #[test]
    fn blocks_follow_one_another() {
        let mut summary = Summary::default();
        for line in 0..300 {
            summary.value("loss", point(line, 1.0));
            let finished = summary.line(Some(line), 10);
            assert_eq!(finished, line % 128 == 127, "{line}");
        }
        let blocks: Vec<&Block> = summary.blocks().collect();
        assert_eq!(blocks.len(), 3);
        assert_eq!(
            (blocks[1].offset, blocks[1].bytes, blocks[1].first_line),
            (1280, 1280, 128)
        );
        assert_eq!(
            (blocks[2].lines, blocks[2].min_step, blocks[2].max_step),
            (44, 256, 299)
        );
        assert_eq!((summary.lines(), summary.end()), (300, 3000));
    }
}
