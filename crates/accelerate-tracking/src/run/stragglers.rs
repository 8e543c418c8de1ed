//! Which ranks keep the others waiting.

use super::TimeSplit;

/// By how much more than the middle rank works, a straggler works: less is chance.
const LAG: f64 = 1.2;

/// Differences below this many seconds are no cause for a word.
const NOTABLE: f64 = 0.002;

impl TimeSplit {
    /// All of it but the communication, in seconds: there the fast ranks wait for the slow ones.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.data_wait + self.compute + self.other
    }
}

/// Which of some ranks, given how many seconds of a step each is [busy](TimeSplit::busy), are busy for
/// clearly longer than the middle one. Of two ranks one can be late.
///
/// ```
/// use accelerate_tracking::run::stragglers;
///
/// assert_eq!(stragglers(&[0.1, 0.2, 0.1]), [1]);
/// assert_eq!(stragglers(&[0.1, 0.2]), [1]);
/// // A fifth, and two thousandths of a second, are chance.
/// assert!(stragglers(&[0.1, 0.11]).is_empty());
/// assert!(stragglers(&[0.001, 0.002]).is_empty());
/// ```
#[must_use]
pub fn stragglers(busy: &[f64]) -> Vec<usize> {
    let Some(middle) = middle(busy) else {
        return Vec::new();
    };
    let late = |time: f64| time > middle * LAG && time - middle > NOTABLE;
    let ranks = busy.iter().enumerate();
    ranks
        .filter_map(|(rank, &time)| late(time).then_some(rank))
        .collect()
}

/// The middle one of some numbers; of an even number of them the lower one of the two.
#[must_use]
pub fn middle(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
