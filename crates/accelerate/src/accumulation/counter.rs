use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroUsize;

use super::models::ModelId;

/// How many batches each set of models has seen since its loader last ended.
///
/// Every set counts for itself, so a loop inside of another one, or two networks that are
/// trained in turn, do not use up each other's batches.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    batches: RefCell<HashMap<Vec<ModelId>, u64>>,
}

impl Counters {
    /// Counts one batch of `set`, in ascending order; whether it completes the gradients.
    ///
    /// `last` says that the loader ends with this batch and that it is to complete them.
    pub(crate) fn advance(&self, set: &[ModelId], num_steps: NonZeroUsize, last: bool) -> bool {
        let mut batches = self.batches.borrow_mut();
        let count = batches.entry(set.to_vec()).or_insert(0);
        if last {
            *count = 0;
            return true;
        }
        *count += 1;
        u64::try_from(num_steps.get()).is_ok_and(|steps| count.is_multiple_of(steps))
    }

    /// Every set of models and its count.
    pub(crate) fn snapshot(&self) -> Vec<(Vec<ModelId>, u64)> {
        let mut counts: Vec<_> = self.batches.borrow().clone().into_iter().collect();
        counts.sort();
        counts
    }

    /// Goes on counting for `set` from `count` on.
    pub(crate) fn restore(&self, mut set: Vec<ModelId>, count: u64) {
        set.sort();
        self.batches.borrow_mut().insert(set, count);
    }

    /// Forgets every count.
    pub(crate) fn clear(&self) {
        self.batches.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(batches: usize, steps: usize, with_loader: bool) -> (String, String) {
        let counters = Counters::default();
        let steps = NonZeroUsize::new(steps).unwrap_or(NonZeroUsize::MIN);
        let set = [ModelId::new()];
        let epoch = || {
            (1..=batches)
                .map(
                    |batch| match counters.advance(&set, steps, with_loader && batch == batches) {
                        true => 'S',
                        false => '.',
                    },
                )
                .collect()
        };
        (epoch(), epoch())
    }

    #[test]
    fn follows_the_patterns_measured_from_the_original() {
        let both = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(pattern(5, 2, true), both(".S.SS"));
        assert_eq!(
            pattern(5, 2, false),
            (".S.S.".to_owned(), "S.S.S".to_owned())
        );
        assert_eq!(pattern(7, 3, true), both("..S..SS"));
        assert_eq!(pattern(6, 3, true), both("..S..S"));
        assert_eq!(pattern(4, 8, true), both("...S"));
        assert_eq!(pattern(4, 8, false), ("....".to_owned(), "...S".to_owned()));
        assert_eq!(pattern(9, 4, false).0, "...S...S.");
    }

    #[test]
    fn sets_count_for_themselves() {
        let counters = Counters::default();
        let two = NonZeroUsize::new(2).unwrap_or(NonZeroUsize::MIN);
        let (a, b) = ([ModelId::new()], [ModelId::new()]);
        assert!(!counters.advance(&a, two, false));
        assert!(!counters.advance(&b, two, false));
        assert!(counters.advance(&a, two, false));
        assert!(counters.advance(&b, two, false));
        assert!(!counters.advance(&a, two, false));
        counters.clear();
        assert!(!counters.advance(&a, two, false));
    }
}
