//! Which numbers of the parameters each rank keeps.

use std::num::NonZeroUsize;
use std::ops::Range;

/// How ZeRO cuts the parameters of a group among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCut {
    /// Stages 1 and 2: the parameters one behind the other, cut into equal parts.
    Group,
    /// Stage 3: every parameter by itself, cut into equal parts.
    Parameter,
}

/// What a rank keeps of the parameters of one group, in one vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroPartition {
    /// Its runs, in the order of the parameters; none of a parameter of which it keeps nothing.
    pub runs: Vec<ZeroRun>,
    /// How long the vector is.
    pub length: usize,
    /// How much of it stages 1 and 2 save of the weights: the padding behind the last rank's is left
    /// out.
    pub saved: usize,
}

/// Numbers of one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroRun {
    /// The parameter's place in its group.
    pub parameter: usize,
    /// Which of its numbers, counted in row-major order.
    pub range: Range<usize>,
    /// Where the first of them lies in the vector.
    pub begin: usize,
}

impl ZeroCut {
    /// What `rank` of `ranks` keeps of parameters of these lengths.
    ///
    /// # Source
    /// `DeepSpeedZeroOptimizer`, which makes the flat vector a multiple of twice the ranks, and
    /// `DeepSpeedZeroOptimizer_Stage3`.
    pub fn partition(self, lengths: &[usize], ranks: NonZeroUsize, rank: usize) -> ZeroPartition {
        match self {
            Self::Group => of_group(lengths, ranks.get(), rank),
            Self::Parameter => of_parameters(lengths, ranks.get(), rank),
        }
    }
}

/// How much of a parameter of stage 3 each rank keeps, padding included.
pub fn zero_share(length: usize, ranks: NonZeroUsize) -> usize {
    length.div_ceil(ranks.get())
}

fn of_group(lengths: &[usize], ranks: usize, rank: usize) -> ZeroPartition {
    let all: usize = lengths.iter().sum();
    let padded = all.next_multiple_of(2 * ranks);
    let length = padded / ranks;
    let own = rank * length..(rank + 1) * length;
    let mut runs = Vec::new();
    let mut next = 0;
    for (parameter, &count) in lengths.iter().enumerate() {
        let (start, end) = (next.max(own.start), (next + count).min(own.end));
        if start < end {
            runs.push(ZeroRun {
                parameter,
                range: start - next..end - next,
                begin: start - own.start,
            });
        }
        next += count;
    }
    let padding = if rank + 1 == ranks { padded - all } else { 0 };
    ZeroPartition {
        runs,
        length,
        saved: length.saturating_sub(padding),
    }
}

fn of_parameters(lengths: &[usize], ranks: usize, rank: usize) -> ZeroPartition {
    let mut runs = Vec::new();
    let mut begin = 0;
    for (parameter, &count) in lengths.iter().enumerate() {
        let share = count.div_ceil(ranks);
        let (start, end) = ((rank * share).min(count), ((rank + 1) * share).min(count));
        if start < end {
            runs.push(ZeroRun {
                parameter,
                range: start..end,
                begin,
            });
        }
        begin += share;
    }
    ZeroPartition {
        runs,
        length: begin,
        saved: begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(cut: ZeroCut, lengths: &[usize], ranks: usize, rank: usize) -> ZeroPartition {
        cut.partition(lengths, NonZeroUsize::new(ranks).unwrap(), rank)
    }

    fn run(parameter: usize, range: Range<usize>, begin: usize) -> ZeroRun {
        ZeroRun {
            parameter,
            range,
            begin,
        }
    }

    #[test]
    fn a_group_is_padded_behind_its_last_parameter() {
        let first = partition(ZeroCut::Group, &[5, 4], 2, 0);
        assert_eq!(first.runs, [run(0, 0..5, 0), run(1, 0..1, 5)]);
        assert_eq!((first.length, first.saved), (6, 6));
        let last = partition(ZeroCut::Group, &[5, 4], 2, 1);
        assert_eq!(last.runs, [run(1, 1..4, 0)]);
        assert_eq!((last.length, last.saved), (6, 3));
        // More padding than a part is long.
        let last = partition(ZeroCut::Group, &[9], 4, 3);
        assert_eq!((last.runs.len(), last.length, last.saved), (0, 4, 0));
    }

    #[test]
    fn parameters_are_padded_each_by_itself() {
        let first = partition(ZeroCut::Parameter, &[5, 4], 2, 0);
        assert_eq!(first.runs, [run(0, 0..3, 0), run(1, 0..2, 3)]);
        let last = partition(ZeroCut::Parameter, &[5, 4], 2, 1);
        assert_eq!(last.runs, [run(0, 3..5, 0), run(1, 2..4, 3)]);
        assert_eq!((last.length, last.saved), (5, 5));
        assert!(partition(ZeroCut::Parameter, &[1], 3, 2).runs.is_empty());
    }

    #[test]
    fn the_runs_of_all_ranks_are_the_parameters() {
        let lengths = [7, 1, 0, 130, 64];
        for cut in [ZeroCut::Group, ZeroCut::Parameter] {
            for ranks in 1..6 {
                let mut found = lengths.map(|_| 0);
                for rank in 0..ranks {
                    for run in partition(cut, &lengths, ranks, rank).runs {
                        assert_eq!(run.range.start, found[run.parameter]);
                        found[run.parameter] = run.range.end;
                    }
                }
                assert_eq!(found, lengths, "{cut:?} on {ranks}");
            }
        }
    }
}
