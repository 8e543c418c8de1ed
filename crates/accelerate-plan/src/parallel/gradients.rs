//! How gradients are added up.

use std::{fmt, num::NonZeroU32};

use super::Quantised;

/// How the gradients of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduction {
    /// When the division for the mean happens.
    pub average: Average,
    /// What happens in backward passes that do not synchronise.
    pub no_sync: NoSync,
    /// Elements after which gradients are sent at the latest, where units are not what is sent.
    pub bucket_size: u64,
    /// How gradients travel.
    pub gradients: Quantised,
}

/// When the sum over N ranks is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Average {
    /// After the sum, by N.
    After,
    /// By f before and by N / f after the sum. f starts at 1 and doubles while N is a multiple of f
    /// and N / f is more than f: 16 bits hold the sum then.
    Balanced,
    /// As [`Average::Balanced`] where gradients are added up in float16, else after the sum.
    BalancedIfFloat16,
    /// By this number before and by N divided by it after the sum.
    Before(f64),
}

impl Average {
    /// What gradients of `ranks` ranks are divided by before and after their sum. `is_float16` says
    /// whether they are added up in float16.
    ///
    /// ```
    /// use accelerate_plan::parallel::Average;
    ///
    /// assert_eq!(Average::Balanced.factors(8, false), (4.0, 2.0));
    /// assert_eq!(Average::After.factors(8, false), (1.0, 8.0));
    /// ```
    pub fn factors(self, ranks: usize, is_float16: bool) -> (f64, f64) {
        let before = match self {
            Self::After => 1.0,
            Self::BalancedIfFloat16 if !is_float16 => 1.0,
            Self::Balanced | Self::BalancedIfFloat16 => balanced(ranks),
            Self::Before(factor) => factor,
        };
        (before, ranks as f64 / before)
    }
}

fn balanced(ranks: usize) -> f64 {
    let mut factor = 1;
    while ranks.is_multiple_of(factor) && ranks / factor > factor {
        factor *= 2;
    }
    factor as f64
}

/// What a backward pass does that does not synchronise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoSync {
    /// It adds whole gradients up on each rank and sends nothing. Costs the memory of whole
    /// gradients.
    Whole,
    /// It reduces as any other, and shards of gradients are added up.
    Shards,
}

/// The largest global norm of the gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clipping {
    /// What the program says when it clips.
    ByProgram,
    /// This number, at each step of the optimizer, without the program's doing.
    Norm(f64),
    /// None: gradients are never clipped, whatever the program says.
    Never,
}

impl fmt::Display for Clipping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByProgram => f.pad("as the program says"),
            Self::Norm(norm) => write!(f, "to the global norm {norm}"),
            Self::Never => f.pad("never"),
        }
    }
}

/// Over how many batches gradients are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accumulation {
    /// What the program says.
    ByProgram,
    /// So many.
    Steps(NonZeroU32),
}

impl fmt::Display for Accumulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByProgram => f.pad("as the program says"),
            Self::Steps(steps) => write!(f, "over {steps} batches"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_divisions_make_the_mean() {
        for ranks in 1..40 {
            for average in [Average::After, Average::Balanced, Average::Before(2.0)] {
                let (before, after) = average.factors(ranks, true);
                assert_eq!(before * after, ranks as f64, "{average:?} {ranks}");
            }
        }
        let before = |ranks| Average::Balanced.factors(ranks, false).0;
        assert_eq!([1, 2, 3, 4, 6, 8, 16, 64].map(before), [
            1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 8.0
        ]);
        assert_eq!(Average::BalancedIfFloat16.factors(8, false), (1.0, 8.0));
        assert_eq!(Average::BalancedIfFloat16.factors(8, true), (4.0, 2.0));
    }
}
