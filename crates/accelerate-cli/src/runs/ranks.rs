//! What the ranks of a run measured in their last steps, and which of them keep the others waiting.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
};

use accelerate_tracking::run::{RankReader, StepMetrics, TimeSplit, stragglers};

/// Over so many steps at the end averages are taken.
const STEPS: usize = 20;

/// The ranks of a run, followed.
#[derive(Debug)]
pub(crate) struct Ranks {
    folder: PathBuf,
    tails: BTreeMap<usize, Tail>,
    problem: Option<String>,
}

#[derive(Debug)]
struct Tail {
    reader: RankReader,
    last: VecDeque<StepMetrics>,
}

/// The last steps of one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RankSummary {
    pub(crate) rank: usize,
    /// The newest, as it was measured.
    pub(crate) newest: StepMetrics,
    /// The mean over the last steps, in seconds.
    pub(crate) seconds: f64,
    /// The means over the last steps.
    pub(crate) split: TimeSplit,
    /// Whether the others wait for it.
    pub(crate) is_straggler: bool,
}

impl Ranks {
    /// Those of the run in `folder`, of which nothing is read yet.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            tails: BTreeMap::new(),
            problem: None,
        }
    }

    /// Reads what has come since.
    pub(super) fn refresh(&mut self) {
        let readers = match RankReader::all(&self.folder) {
            Ok(readers) => readers,
            Err(error) => {
                self.problem = Some(super::with_causes(&error));
                return;
            }
        };
        self.problem = None;
        for reader in readers {
            self.tails.entry(reader.rank()).or_insert_with(|| Tail {
                reader,
                last: VecDeque::new(),
            });
        }
        for tail in self.tails.values_mut() {
            match tail.reader.poll() {
                Ok(steps) => {
                    let skipped = steps.len().saturating_sub(STEPS);
                    tail.last.extend(steps.into_iter().skip(skipped));
                    let surplus = tail.last.len().saturating_sub(STEPS);
                    tail.last.drain(..surplus);
                }
                Err(error) => self.problem = Some(super::with_causes(&error)),
            }
        }
    }

    /// Why some of them cannot be read, if that is so.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The last steps of all ranks that have measured something, by rank.
    pub(crate) fn summaries(&self) -> Vec<RankSummary> {
        let tails = self.tails.iter();
        let mut summaries: Vec<_> = tails
            .filter_map(|(rank, tail)| summary(*rank, &tail.last))
            .collect();
        mark_stragglers(&mut summaries);
        summaries
    }
}

fn summary(rank: usize, steps: &VecDeque<StepMetrics>) -> Option<RankSummary> {
    let newest = steps.back()?.clone();
    let mean = |of: fn(&StepMetrics) -> f64| {
        let values = steps.iter().map(of).filter(|value| value.is_finite());
        values.sum::<f64>() / steps.len() as f64
    };
    Some(RankSummary {
        rank,
        newest,
        seconds: mean(|step| step.seconds),
        split: TimeSplit {
            data_wait: mean(|step| step.split.data_wait),
            compute: mean(|step| step.split.compute),
            communication: mean(|step| step.split.communication),
            other: mean(|step| step.split.other),
        },
        is_straggler: false,
    })
}

/// A straggler is busy for clearly longer than the middle rank. Time in communication does not
/// count: there the fast ranks wait for the slow one.
fn mark_stragglers(ranks: &mut [RankSummary]) {
    let busy: Vec<f64> = ranks.iter().map(|rank| rank.split.busy()).collect();
    for late in stragglers(&busy) {
        if let Some(rank) = ranks.get_mut(late) {
            rank.is_straggler = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: usize, compute: f64, communication: f64) -> RankSummary {
        RankSummary {
            rank,
            split: TimeSplit {
                compute,
                communication,
                ..TimeSplit::default()
            },
            ..RankSummary::default()
        }
    }

    fn stragglers(mut ranks: Vec<RankSummary>) -> Vec<usize> {
        mark_stragglers(&mut ranks);
        let late = ranks.iter().filter(|rank| rank.is_straggler);
        late.map(|rank| rank.rank).collect()
    }

    #[test]
    fn who_is_busy_longest_is_late_and_not_who_waits() {
        let waiting = [rank(0, 0.1, 0.1), rank(1, 0.2, 0.0), rank(2, 0.1, 0.1)];
        assert_eq!(stragglers(waiting.to_vec()), [1]);
        assert_eq!(stragglers(vec![rank(0, 0.1, 0.1), rank(1, 0.2, 0.0)]), [1]);
    }

    #[test]
    fn small_differences_and_lone_ranks_are_no_cause_for_a_word() {
        assert!(stragglers(vec![rank(0, 0.1, 0.0), rank(1, 0.11, 0.0)]).is_empty());
        assert!(stragglers(vec![rank(0, 0.001, 0.0), rank(1, 0.002, 0.0)]).is_empty());
        assert!(stragglers(vec![rank(0, 9.0, 0.0)]).is_empty());
        assert!(stragglers(Vec::new()).is_empty());
    }

    #[test]
    fn averages_are_over_the_last_steps() {
        let steps: VecDeque<StepMetrics> = (0..4)
            .map(|step| StepMetrics {
                step,
                seconds: step as f64,
                ..StepMetrics::default()
            })
            .collect();
        let summary = summary(3, &steps).unwrap();
        assert_eq!(
            (summary.rank, summary.newest.step, summary.seconds),
            (3, 3, 1.5)
        );
        assert_eq!(super::summary(0, &VecDeque::new()), None);
    }
}
