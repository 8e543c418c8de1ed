//! What of two runs differs, step by step.

use std::{fmt, str::FromStr};

use accelerate_formats::step_records::{BatchRecord, Digests, StepRecord};

use super::{global::GlobalStep, runs::Run};

/// A step in which two runs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The step of the uninterrupted run, from 1.
    pub(super) step: usize,
    /// The rank that differs, if it is one rank's.
    rank: Option<usize>,
    /// What differs, first what comes first in a step. Not empty.
    what: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.step)?;
        if let Some(rank) = self.rank {
            write!(f, ", rank {rank}")?;
        }
        let mut what = self.what.iter();
        if let Some(first) = what.next() {
            write!(f, ": {first}")?;
        }
        let others: Vec<&str> = what.map(String::as_str).collect();
        if !others.is_empty() {
            write!(f, "; then {}", others.join("; "))?;
        }
        Ok(())
    }
}

/// How far losses may be apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tolerance {
    NotCompared,
    /// A share of the expected loss.
    Relative(f64),
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NotCompared);
        }
        let share = text.parse().ok();
        let share = share.filter(|share: &f64| share.is_finite() && *share >= 0.0);
        let share = share.ok_or("expected a number that is not negative, or `none`")?;
        Ok(Self::Relative(share))
    }
}

/// The steps of `found`, of as many processes, that are not those of `whole` behind step `done`.
/// Steps that only one of them has are not looked at.
pub(super) fn same_processes(whole: &Run, found: &Run, done: usize) -> Vec<Difference> {
    let mut differences = Vec::new();
    for at in 0..found.steps().min(whole.steps().saturating_sub(done)) {
        let ranks = whole.ranks.iter().zip(&found.ranks).enumerate();
        let differing = ranks.filter_map(|(rank, (whole, found))| {
            let what = match (whole.get(done + at), found.get(at)) {
                (Some(expected), Some(found)) => of_step(expected, found),
                (None, None) => Vec::new(),
                _ => vec!["a rank made fewer steps than rank 0".to_owned()],
            };
            (!what.is_empty()).then_some((rank, what))
        });
        if let Some((rank, what)) = differing.min_by_key(|(rank, _)| *rank) {
            differences.push(Difference {
                step: done + at + 1,
                rank: (whole.ranks.len() > 1).then_some(rank),
                what,
            });
        }
    }
    differences
}

/// As [`same_processes`], for another number of processes: the samples of all ranks in their order,
/// and the mean loss.
pub(super) fn other_processes(
    whole: &Run,
    found: &Run,
    done: usize,
    losses: Tolerance,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    for at in 0..found.steps().min(whole.steps().saturating_sub(done)) {
        let expected = GlobalStep::of(&whole.ranks, done + at);
        let own = GlobalStep::of(&found.ranks, at);
        let what: Vec<String> = [
            of_order(&expected, &own),
            of_mean_loss(&expected, &own, losses),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !what.is_empty() {
            differences.push(Difference {
                step: done + at + 1,
                rank: None,
                what,
            });
        }
    }
    differences
}

fn of_order(expected: &GlobalStep, found: &GlobalStep) -> Option<String> {
    match (&expected.indices, &found.indices) {
        (Some(expected), Some(found)) => first_pair("samples", expected, found),
        _ => first_pair("contents of samples", &expected.rows, &found.rows),
    }
}

fn of_mean_loss(expected: &GlobalStep, found: &GlobalStep, losses: Tolerance) -> Option<String> {
    let Tolerance::Relative(share) = losses else {
        return None;
    };
    // Samples that were repeated to fill a step count in it.
    let (expected, found) = (expected.loss?, found.loss?);
    let is_near = (expected - found).abs() <= share * expected.abs();
    let same = is_near || expected.to_bits() == found.to_bits();
    (!same).then(|| format!("the mean loss: expected {expected}, found {found}"))
}

/// What of one rank's step differs, in the order in which a step comes about.
fn of_step(expected: &StepRecord, found: &StepRecord) -> Vec<String> {
    let handed_out = |record: &StepRecord| {
        let first = record.batches.first();
        first
            .map(|batch| batch.generators.clone())
            .unwrap_or_default()
    };
    [
        of_batches("samples", &expected.batches, &found.batches),
        of_batches(
            "samples of other loops, such as an evaluation",
            &expected.other_batches,
            &found.other_batches,
        ),
        of_digests(
            "random generators before the step",
            &handed_out(expected),
            &handed_out(found),
        ),
        of_losses(expected, found),
        of_digests("weights", &expected.weights, &found.weights),
        of_digests("optimizer state", &expected.optimizer, &found.optimizer),
        of_digests("loss scale", &expected.loss_scale, &found.loss_scale),
        of_digests(
            "random generators behind the step",
            &expected.generators,
            &found.generators,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_batches(what: &str, expected: &[BatchRecord], found: &[BatchRecord]) -> Option<String> {
    if expected.len() != found.len() {
        let (expected, found) = (expected.len(), found.len());
        return Some(format!(
            "{what}: expected {expected} batches, found {found}"
        ));
    }
    expected.iter().zip(found).find_map(|(expected, found)| {
        let by_number = match (&expected.indices, &found.indices) {
            (Some(expected), Some(found)) => first_pair(what, expected, found),
            _ => None,
        };
        let by_content = || first_pair(&format!("contents of {what}"), &expected.rows, &found.rows);
        by_number.or_else(by_content)
    })
}

/// The first place at which two lists differ, in words.
fn first_pair<T: PartialEq + fmt::Display>(
    what: &str,
    expected: &[T],
    found: &[T],
) -> Option<String> {
    let pairs = expected.iter().zip(found).enumerate();
    for (at, (expected, found)) in pairs {
        if expected != found {
            return Some(format!(
                "{what}: expected {expected} at place {at}, found {found}"
            ));
        }
    }
    let (expected, found) = (expected.len(), found.len());
    (expected != found).then(|| format!("{what}: expected {expected} of them, found {found}"))
}

fn of_losses(expected: &StepRecord, found: &StepRecord) -> Option<String> {
    if expected.losses == found.losses {
        return None;
    }
    let mut pairs = expected.losses().zip(found.losses());
    let first = pairs.find(|(expected, found)| expected.to_bits() != found.to_bits());
    Some(match first {
        Some((expected, found)) => format!("losses: expected {expected}, found {found}"),
        None => {
            let (expected, found) = (expected.losses.len(), found.losses.len());
            format!("losses: expected {expected} of them, found {found}")
        }
    })
}

fn of_digests(what: &str, expected: &Digests, found: &Digests) -> Option<String> {
    if expected == found {
        return None;
    }
    let value = |list: &Digests, name: &str| {
        let entry = list.iter().find(|(own, _)| own == name);
        entry.map(|(_, value)| value.clone())
    };
    let differing: Vec<&str> = expected
        .iter()
        .filter(|(name, own)| value(found, name).as_ref() != Some(own))
        .map(|(name, _)| name.as_str())
        .collect();
    Some(match *differing {
        [] => format!(
            "{what}: expected {} values, found {}",
            expected.len(),
            found.len()
        ),
        [name] => format!("{what}: `{name}`"),
        [first, ..] => format!("{what}: `{first}` and {} more", differing.len() - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(indices: &[u64]) -> BatchRecord {
        BatchRecord {
            indices: Some(indices.to_vec()),
            rows: indices.iter().map(|index| format!("row {index}")).collect(),
            generators: vec![("cpu".to_owned(), "a".to_owned())],
            ..BatchRecord::default()
        }
    }

    fn step(indices: &[u64], loss: f64) -> StepRecord {
        StepRecord {
            batches: vec![batch(indices)],
            losses: vec![loss.to_bits()],
            weights: vec![("w".to_owned(), "0".to_owned())],
            ..StepRecord::default()
        }
    }

    fn told(differences: &[Difference]) -> Vec<String> {
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_comes_first_in_a_step_is_told_first() {
        let steps = || vec![step(&[3, 1], 0.5), step(&[0, 2], 0.25)];
        let whole = Run {
            ranks: vec![steps(), steps()],
        };
        assert_eq!(same_processes(&whole, &whole, 0), []);
        let mut last = vec![steps().remove(1)];
        last[0].weights[0].1 = "1".to_owned();
        last[0].batches[0].generators[0].1 = "b".to_owned();
        let found = Run {
            ranks: vec![vec![steps().remove(1)], last.clone()],
        };
        assert_eq!(
            told(&same_processes(&whole, &found, 1)),
            ["step 2, rank 1: random generators before the step: `cpu`; then weights: `w`"]
        );
        last[0].batches[0].indices = Some(vec![0, 4]);
        last[0].losses = vec![0.26f64.to_bits()];
        let found = Run {
            ranks: vec![vec![steps().remove(1)], last],
        };
        let all = told(&same_processes(&whole, &found, 1));
        assert!(
            all[0].starts_with("step 2, rank 1: samples: expected 2 at place 1, found 4; then"),
            "{all:?}"
        );
        assert!(
            all[0].contains("losses: expected 0.25, found 0.26"),
            "{all:?}"
        );
    }

    #[test]
    fn other_processes_see_one_order_and_one_mean() {
        let whole = Run {
            ranks: vec![vec![step(&[0, 1, 2], 1.0)], vec![step(&[3, 4, 5], 2.0)]],
        };
        let three = |last: u64, loss| Run {
            ranks: vec![
                vec![step(&[0, 1], 1.0)],
                vec![step(&[2, 3], 1.5)],
                vec![step(&[4, last], loss)],
            ],
        };
        let near = Tolerance::Relative(1e-6);
        assert_eq!(other_processes(&whole, &three(5, 2.0), 0, near), []);
        assert_eq!(
            told(&other_processes(&whole, &three(6, 2.6), 0, near)),
            [
                "step 1: samples: expected 5 at place 5, found 6; then the mean loss: expected 1.5, \
              found 1.7"
            ]
        );
        let not_compared = other_processes(&whole, &three(5, 2.6), 0, Tolerance::NotCompared);
        assert_eq!(not_compared, []);
    }
}
