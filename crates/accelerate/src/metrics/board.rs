//! How fast each rank is, put where rank 0 can read it.

use std::fmt;
use std::time::Duration;

use accelerate_torch::Store;
use accelerate_tracking::run::{TimeSplit, middle, stragglers};
use serde::{Deserialize, Serialize};

use crate::collectives::{decode_note, encode_note};

/// How long the store may take to answer with what it has.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sums over some steps of one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    steps: u32,
    split: TimeSplit,
}

/// The mean over some steps of one rank, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Posted {
    /// Counts what this rank has told, from 1.
    number: u64,
    split: TimeSplit,
}

/// What was told.
#[derive(Debug)]
pub(super) struct Board {
    posted: u64,
    /// The last that was read of each rank, by number, so that old news are known.
    read: Vec<u64>,
}

/// A rank that keeps the others waiting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Straggler {
    pub(super) rank: usize,
    split: TimeSplit,
    middle: f64,
}

impl Pace {
    /// Adds the mean of some steps.
    pub(super) fn add(&mut self, mean: &TimeSplit, count: u32) {
        let count_of = f64::from(count);
        self.steps = self.steps.saturating_add(count);
        self.split.data_wait += count_of * mean.data_wait;
        self.split.compute += count_of * mean.compute;
        self.split.communication += count_of * mean.communication;
        self.split.other += count_of * mean.other;
    }

    /// The mean since the last call, if there was a step.
    pub(super) fn take(&mut self) -> Option<TimeSplit> {
        let sums = std::mem::take(self);
        let count = f64::from(sums.steps);
        (sums.steps > 0).then(|| TimeSplit {
            data_wait: sums.split.data_wait / count,
            compute: sums.split.compute / count,
            communication: sums.split.communication / count,
            other: sums.split.other / count,
        })
    }
}

impl Board {
    pub(super) fn new(world: usize) -> Self {
        Self {
            posted: 0,
            read: vec![0; world],
        }
    }

    /// Tells how fast this rank is.
    pub(super) fn post(&mut self, store: &Store, rank: usize, split: TimeSplit) {
        self.posted += 1;
        let posted = Posted {
            number: self.posted,
            split,
        };
        if let Err(error) = store.set(&key(rank), &encode_note(&posted)) {
            tracing::debug!("other ranks do not learn how fast this one is: {error}");
        }
    }

    /// Who keeps the others waiting, by what ranks have told since the last call; none if nobody does, or
    /// not all have told something.
    pub(super) fn stragglers(&mut self, store: &Store) -> Option<Vec<Straggler>> {
        let mut splits = Vec::with_capacity(self.read.len());
        for rank in 0..self.read.len() {
            splits.push(read(store, rank)?);
        }
        let is_new = |(posted, read): (&Posted, &u64)| posted.number > *read;
        if !splits.iter().zip(&self.read).all(is_new) {
            return None;
        }
        self.read = splits.iter().map(|posted| posted.number).collect();
        let splits: Vec<TimeSplit> = splits.iter().map(|posted| posted.split).collect();
        Some(late(&splits)).filter(|found| !found.is_empty())
    }
}

fn key(rank: usize) -> String {
    format!("accelerate/steps/pace/{rank}")
}

fn read(store: &Store, rank: usize) -> Option<Posted> {
    let key = key(rank);
    if !store.contains(&key).ok()? {
        return None;
    }
    decode_note(&store.get(&key, PATIENCE).ok()?)
}

fn late(splits: &[TimeSplit]) -> Vec<Straggler> {
    let busy: Vec<f64> = splits.iter().map(TimeSplit::busy).collect();
    let middle = middle(&busy).unwrap_or(0.0);
    let ranks = stragglers(&busy).into_iter();
    let found = ranks.filter_map(|rank| {
        let split = *splits.get(rank)?;
        Some(Straggler {
            rank,
            split,
            middle,
        })
    });
    found.collect()
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| 1e3 * seconds;
        write!(
            f,
            "rank {} keeps the others waiting: a step keeps it busy for {:.1} ms, {:.1} ms of which \
             it waits for data and {:.1} ms it computes; the middle rank is busy for {:.1} ms",
            self.rank,
            ms(self.split.busy()),
            ms(self.split.data_wait),
            ms(self.split.compute),
            ms(self.middle),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(data_wait: f64, communication: f64) -> TimeSplit {
        TimeSplit {
            data_wait,
            compute: 0.01,
            communication,
            other: 0.0,
        }
    }

    #[test]
    fn means_count_by_steps() {
        let mut pace = Pace::default();
        assert_eq!(pace.take(), None);
        pace.add(&split(1.0, 0.0), 3);
        pace.add(&split(5.0, 4.0), 1);
        let mean = pace.take().unwrap();
        assert_eq!((mean.data_wait, mean.communication), (2.0, 1.0));
        assert_eq!(pace.take(), None);
    }

    #[test]
    fn who_waits_least_for_the_others_is_named_with_what_takes_so_long() {
        let found = late(&[split(0.0, 0.09), split(0.09, 0.0)]);
        assert_eq!(found.iter().map(|one| one.rank).collect::<Vec<_>>(), [1]);
        assert_eq!(
            found[0].to_string(),
            "rank 1 keeps the others waiting: a step keeps it busy for 100.0 ms, 90.0 ms of which it \
             waits for data and 10.0 ms it computes; the middle rank is busy for 10.0 ms"
        );
        assert!(late(&[split(0.0, 0.5), split(0.001, 0.5)]).is_empty());
    }

    #[test]
    fn only_what_is_new_of_all_ranks_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::file(&folder.path().join("store"), 2).unwrap();
        let (mut first, mut second) = (Board::new(2), Board::new(2));
        first.post(&store, 0, split(0.0, 0.09));
        assert_eq!(first.stragglers(&store), None, "rank 1 has told nothing");
        second.post(&store, 1, split(0.09, 0.0));
        let found = first.stragglers(&store).unwrap();
        assert_eq!((found.len(), found[0].rank), (1, 1));
        first.post(&store, 0, split(0.0, 0.09));
        assert_eq!(first.stragglers(&store), None, "rank 1 has stopped");
        second.post(&store, 1, split(0.0, 0.0));
        assert_eq!(first.stragglers(&store), None, "rank 1 has caught up");
    }
}
