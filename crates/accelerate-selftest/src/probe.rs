//! What a step works with.

use std::fmt::Debug;

use accelerate::tch::{Device, Kind, Tensor};
use accelerate::{Accelerator, AcceleratorBuilder};
use accelerate_torch::ProcessGroup;
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::failure::Failure;
use crate::watch::Ended;

/// A value that is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) rank: usize,
    pub(crate) step: String,
    /// What was looked at.
    pub(crate) what: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// The accelerator of this rank, and what it found wrong.
///
/// A wrong value does not end a step: the other ranks go on with it too.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    pub(crate) accelerator: &'a Accelerator,
    pub(crate) board: &'a Board,
    step: &'static str,
    checks: usize,
    findings: Vec<Finding>,
    notes: Vec<String>,
}

/// How many values of a tensor are shown.
const SHOWN: usize = 8;
/// How much of a text is shown, and how much of that before the first difference.
const EXCERPT: usize = 120;
const BEFORE: usize = 40;

impl<'a> Probe<'a> {
    pub(crate) fn new(accelerator: &'a Accelerator, board: &'a Board) -> Self {
        Self {
            accelerator,
            board,
            step: "",
            checks: 0,
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, step: &'static str) {
        self.step = step;
    }

    pub(crate) fn rank(&self) -> usize {
        self.accelerator.process_index()
    }

    pub(crate) fn world(&self) -> usize {
        self.accelerator.num_processes()
    }

    pub(crate) fn device(&self) -> Device {
        self.accelerator.device()
    }

    /// The group of all ranks.
    ///
    /// # Errors
    /// If this is a process by itself.
    pub(crate) fn group(&self) -> Result<ProcessGroup, Failure> {
        let group = self.accelerator.state().process_group();
        group.cloned().ok_or(Failure::Alone)
    }

    /// Settings for another accelerator of this process, on the same device.
    pub(crate) fn builder(&self) -> AcceleratorBuilder {
        Accelerator::builder().cpu(self.device() == Device::Cpu)
    }

    /// The numbers of every rank, in the order of ranks.
    ///
    /// # Errors
    /// What the group reports.
    pub(crate) fn of_all_ranks(&self, own: &[i64]) -> Result<Vec<Vec<i64>>, Failure> {
        let Some(group) = self.accelerator.state().process_group() else {
            return Ok(vec![own.to_vec()]);
        };
        let bytes: Vec<u8> = own.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = group.all_gather_bytes(&bytes)?;
        Ok(all.iter().map(|bytes| numbers(bytes)).collect())
    }

    /// Compares two values.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "values are made for the comparison, and steps read better without borrows"
    )]
    pub(crate) fn equal<T: PartialEq + Debug>(
        &mut self,
        what: impl Into<String>,
        expected: T,
        found: T,
    ) {
        self.checks += 1;
        if expected != found {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            let place = first_difference(&expected, &found);
            self.add(
                what.into(),
                excerpt(&expected, place),
                excerpt(&found, place),
            );
        }
    }

    /// Compares two tensors: the same shape, and no two values further apart than `tolerance`
    /// times the size of what is expected (or than `tolerance`, for what is below 1).
    ///
    /// # Errors
    /// If the values cannot be read.
    pub(crate) fn close(
        &mut self,
        what: impl Into<String>,
        expected: &Tensor,
        found: &Tensor,
        tolerance: f64,
    ) -> Result<(), Failure> {
        if expected.size() != found.size() {
            let what = format!("shape of {}", what.into());
            self.equal(what, expected.size(), found.size());
            return Ok(());
        }
        self.checks += 1;
        let (expected, found) = (values(expected)?, values(found)?);
        let is_close = |(expected, found): (&f64, &f64)| {
            (expected - found).abs() <= tolerance * expected.abs().max(1.0)
        };
        if let Some(place) = expected.iter().zip(&found).position(|pair| !is_close(pair)) {
            let from = |values: &[f64]| {
                let shown: Vec<_> = values.iter().skip(place).take(SHOWN).collect();
                format!("{shown:?} from value {place} on")
            };
            self.add(what.into(), from(&expected), from(&found));
        }
        Ok(())
    }

    /// Compares a tensor to the values that it has to hold, bit by bit.
    ///
    /// # Errors
    /// If the values cannot be read.
    pub(crate) fn holds(
        &mut self,
        what: impl Into<String>,
        expected: &[f64],
        found: &Tensor,
    ) -> Result<(), Failure> {
        let found = values(found)?;
        self.equal(what, expected, found.as_slice());
        Ok(())
    }

    /// Says something that is worth knowing on rank 0 when the stage has passed.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn add(&mut self, what: String, expected: String, found: String) {
        self.findings.push(Finding {
            rank: self.rank(),
            step: self.step.to_owned(),
            what,
            expected,
            found,
        });
    }

    pub(crate) fn step(&self) -> &'static str {
        self.step
    }

    /// How the stage ended on this rank.
    pub(crate) fn finish(self) -> Ended {
        Ended {
            findings: self.findings,
            notes: self.notes,
            checks: self.checks,
            is_lost: false,
        }
    }
}

/// The values of a tensor, in order.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn values(tensor: &Tensor) -> Result<Vec<f64>, Failure> {
    let flat = tensor
        .f_detach()?
        .f_to_device(Device::Cpu)?
        .f_to_kind(Kind::Double)?
        .f_reshape([-1])?;
    Ok(Vec::try_from(&flat)?)
}

/// The whole numbers of a tensor, in order.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn whole_numbers(tensor: &Tensor) -> Result<Vec<i64>, Failure> {
    let flat = tensor.f_to_device(Device::Cpu)?.f_reshape([-1])?;
    Ok(Vec::try_from(&flat)?)
}

/// The place of the first character that differs.
fn first_difference(expected: &str, found: &str) -> usize {
    let pairs = expected.chars().zip(found.chars());
    pairs
        .take_while(|(expected, found)| expected == found)
        .count()
}

/// The text around a place, whole where it is short.
fn excerpt(text: &str, place: usize) -> String {
    let length = text.chars().count();
    if length <= EXCERPT {
        return text.to_owned();
    }
    let start = place.saturating_sub(BEFORE).min(length);
    let part: String = text.chars().skip(start).take(EXCERPT).collect();
    let before = if start > 0 { "..." } else { "" };
    let after = if start + EXCERPT < length { "..." } else { "" };
    format!("{before}{part}{after}")
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks
        .iter()
        .map(|chunk| i64::from_le_bytes(*chunk))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shown_where_they_differ() {
        let expected: Vec<usize> = (0..200).collect();
        let mut found = expected.clone();
        found[150] = 999;
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        let place = first_difference(&expected, &found);
        let (expected, found) = (excerpt(&expected, place), excerpt(&found, place));
        assert!(expected.contains(" 149, 150, 151, "), "{expected}");
        assert!(found.contains(" 149, 999, 151, "), "{found}");
        assert!(
            found.starts_with("...") && found.ends_with("..."),
            "{found}"
        );
        assert!(found.len() <= EXCERPT + 6);
    }

    #[test]
    fn short_texts_are_shown_whole() {
        let place = first_difference("[1, 2]", "[1, 3, 4]");
        assert_eq!(excerpt("[1, 3, 4]", place), "[1, 3, 4]");
        assert_eq!(excerpt("", first_difference("", "x")), "");
    }
}
