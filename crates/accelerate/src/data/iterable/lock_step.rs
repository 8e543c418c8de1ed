use accelerate_torch::ProcessGroup;
use tch::{Device, Kind, Tensor};

use crate::{Error, Result};

/// What a rank has for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Its part has ended.
    Ended,
    /// A batch of its part.
    Batch,
    /// An error.
    Failed,
    /// Its part ended before the first batch.
    Empty,
}

/// What all ranks do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Go,
    End,
}

/// Tells all ranks what each has for the next step.
///
/// # Collective
/// Every rank calls this once for each step.
///
/// # Errors
/// On every rank alike: what another rank reports, or that ranks got nothing where others
/// got batches.
pub(super) fn agree(group: &ProcessGroup, own: Turn, error: Option<&Error>) -> Result<Step> {
    let turns = all_turns(group, own)?;
    if turns.contains(&(Turn::Failed as i64)) {
        return Err(failure(group, own, error)?);
    }
    if !turns.contains(&(Turn::Batch as i64)) {
        return Ok(Step::End);
    }
    let empty: Vec<usize> = (0..turns.len())
        .filter(|&rank| turns[rank] == Turn::Empty as i64)
        .collect();
    if empty.is_empty() {
        return Ok(Step::Go);
    }
    Err(Error::Argument {
        operation: "IterableDataLoaderShard",
        expected: "at least one batch in the part of every rank".to_owned(),
        found: format!(
            "none on ranks {empty:?}; use fewer ranks, or `dispatch_batches: Some(true)` to let \
             rank 0 read and deal out"
        ),
    })
}

fn all_turns(group: &ProcessGroup, own: Turn) -> Result<Vec<i64>> {
    let ranks = i64::try_from(group.size()).unwrap_or(i64::MAX);
    let turns = Tensor::f_zeros([ranks], (Kind::Int64, Device::Cpu))?;
    group.all_gather_into_tensor(&turns, &Tensor::f_from_slice(&[own as i64])?)?;
    Ok(Vec::try_from(&turns)?)
}

/// The error of the first rank that failed, for the others.
fn failure(group: &ProcessGroup, own: Turn, error: Option<&Error>) -> Result<Error> {
    let message = match error {
        Some(error) if own == Turn::Failed => error.with_causes(),
        _ => String::new(),
    };
    let messages = group.all_gather_bytes(message.as_bytes())?;
    let (rank, message) = messages
        .iter()
        .enumerate()
        .find(|(_, message)| !message.is_empty())
        .map_or((0, String::new()), |(rank, message)| {
            (rank, String::from_utf8_lossy(message).into_owned())
        });
    Ok(Error::ReadElsewhere { rank, message })
}
