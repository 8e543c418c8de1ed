//! Parameters that got no gradient: which, on which ranks, and what the others did.
//!
//! The rank that notices leaves its names in the store, where the others find them: ranks
//! that notice the same in the same step, and those that waited for the gradients in vain.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{self as torch, ProcessGroup, Store};

use super::Call;
use crate::Error;
use crate::collectives::{decode_note, encode_note, read_note, within};
use crate::state::{Attendance, PartialState};

/// How long the others may take to come to the same step.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the store may take in all.
const LIMIT: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(50);
const ANSWER: Duration = Duration::from_secs(1);

/// What one rank has of the gradients of a backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gradients {
    /// Those of these parameters are missing.
    Missing(Vec<String>),
    /// All are there, and are waited with for those of others.
    Complete,
    /// Nobody said.
    Unknown,
}

/// Parameters that got no gradient in a backward pass in which ranks average gradients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnusedReport {
    /// This process.
    pub rank: usize,
    /// What each rank has, by rank.
    pub gradients: Vec<Gradients>,
    /// What to do about it.
    pub remedy: &'static str,
}

impl UnusedReport {
    /// Whether every rank misses some gradient.
    #[must_use]
    pub fn is_on_all_ranks(&self) -> bool {
        let misses = |of: &Gradients| matches!(of, Gradients::Missing(_));
        self.gradients.iter().all(misses)
    }

    /// The ranks with the same missing parameters, in the order of the first of them.
    fn missing(&self) -> Vec<(&[String], Vec<usize>)> {
        let mut found: Vec<(&[String], Vec<usize>)> = Vec::new();
        for (rank, gradients) in self.gradients.iter().enumerate() {
            let Gradients::Missing(names) = gradients else {
                continue;
            };
            match found.iter_mut().find(|(others, _)| others == names) {
                Some((_, ranks)) => ranks.push(rank),
                None => found.push((names, vec![rank])),
            }
        }
        found
    }

    fn those(&self, wanted: &Gradients) -> String {
        let ranks = self.gradients.iter().enumerate();
        named(
            &ranks
                .filter(|(_, of)| *of == wanted)
                .map(|(rank, _)| rank)
                .collect::<Vec<_>>(),
        )
    }
}

/// `rank 1`, `ranks 1, 2`, or nothing.
fn named(ranks: &[usize]) -> String {
    let all: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match ranks.len() {
        0 => String::new(),
        1 => format!("rank {}", all[0]),
        _ => format!("ranks {}", all.join(", ")),
    }
}

impl fmt::Display for UnusedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.is_on_all_ranks();
        f.write_str("parameters got no gradient in the last backward pass: ")?;
        for (at, (names, ranks)) in self.missing().into_iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            let names = names.join("`, `");
            match all && ranks.len() == self.gradients.len() {
                true => write!(f, "`{names}`, on all {} ranks", ranks.len())?,
                false => write!(f, "{separator}`{names}` on {}", named(&ranks))?,
            }
        }
        let complete = self.those(&Gradients::Complete);
        if !complete.is_empty() {
            write!(f, "; {complete} had them and waited for the others")?;
        }
        let unknown = self.those(&Gradients::Unknown);
        if !unknown.is_empty() {
            write!(f, "; of {unknown} nothing is known")?;
        }
        if !all && !complete.is_empty() {
            f.write_str(
                "; a branch that only some ranks take needs `find_unused_parameters`, or the same \
                 choice on every rank",
            )?;
        }
        write!(f, "; {}", self.remedy)
    }
}

/// The error of a rank that finds, before call `call`, that `names` got no gradient.
pub(super) fn found(
    state: &PartialState,
    group: &ProcessGroup,
    call: Call,
    names: Vec<String>,
    remedy: &'static str,
) -> Error {
    let (own, world) = (state.process_index(), state.num_processes());
    let (asking, shared, note) = (state.clone(), group.clone(), (call.number, names.clone()));
    let gradients = within(LIMIT, move || {
        let posted = encode_note(&note);
        if let Err(error) = shared.store().set(&key(own), &posted) {
            tracing::debug!(%error, "the other ranks cannot be told of unused parameters");
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let gradients = all(&asking, &shared, call.number)?;
            let open = |(rank, of): (usize, &Gradients)| rank != own && *of == Gradients::Unknown;
            if !gradients.iter().enumerate().any(open) || Instant::now() >= end {
                return Ok::<_, torch::Error>(gradients);
            }
            thread::sleep(PAUSE);
        }
    });
    let mut gradients = match gradients {
        Some(Ok(gradients)) => gradients,
        _ => vec![Gradients::Unknown; world],
    };
    gradients[own] = Gradients::Missing(names);
    report(own, gradients, remedy)
}

/// The error of a rank whose backward pass, `call`, waited in vain for gradients that
/// others, as they found in their next call, do not have.
pub(in crate::parallel) fn of_others(
    state: &PartialState,
    group: &ProcessGroup,
    call: Call,
) -> Option<Error> {
    let own = state.process_index();
    let (asking, shared) = (state.clone(), group.clone());
    let mut gradients = within(LIMIT, move || all(&asking, &shared, call.number + 1))?.ok()?;
    let misses = |of: &Gradients| matches!(of, Gradients::Missing(_));
    gradients.iter().any(misses).then(|| {
        gradients[own] = Gradients::Complete;
        report(
            own,
            gradients,
            "use the parameters in the loss, freeze them, or set `find_unused_parameters`",
        )
    })
}

fn report(rank: usize, gradients: Vec<Gradients>, remedy: &'static str) -> Error {
    Error::UnusedParameters {
        report: Box::new(UnusedReport {
            rank,
            gradients,
            remedy,
        }),
    }
}

fn key(rank: usize) -> String {
    format!("accelerate/unused/{rank}")
}

/// What each rank has, as it is known now; nothing of this one.
fn all(
    state: &PartialState,
    group: &ProcessGroup,
    number: u64,
) -> Result<Vec<Gradients>, torch::Error> {
    let mut gradients = vec![Gradients::Unknown; state.num_processes()];
    for answer in state.ask_others(group)? {
        let last = read_note(&answer.news).pop();
        let waits = answer.attendance == Attendance::Here
            && last.is_some_and(|call| {
                call.operation == "backward" && call.under_way && call.number + 1 == number
            });
        // After the question: who has come out of its backward pass by then has left a note.
        gradients[answer.rank] = match noted(group.store(), answer.rank, number)? {
            Some(names) => Gradients::Missing(names),
            None if waits => Gradients::Complete,
            None => Gradients::Unknown,
        };
    }
    Ok(gradients)
}

/// The parameters that a rank noted before its call `number`.
fn noted(store: &Store, rank: usize, number: u64) -> Result<Option<Vec<String>>, torch::Error> {
    let key = key(rank);
    if !store.contains(&key)? {
        return Ok(None);
    }
    let note: Option<(u64, Vec<String>)> = decode_note(&store.get(&key, ANSWER)?);
    Ok(note.and_then(|(noted, names)| (noted == number).then_some(names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(names: &[&str]) -> Gradients {
        Gradients::Missing(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn text(gradients: Vec<Gradients>) -> String {
        UnusedReport {
            rank: 0,
            gradients,
            remedy: "freeze them",
        }
        .to_string()
    }

    #[test]
    fn it_is_said_whether_all_ranks_or_some_miss_gradients() {
        let start = "parameters got no gradient in the last backward pass: ";
        assert_eq!(
            text(vec![missing(&["a", "b"]), missing(&["a", "b"])]),
            format!("{start}`a`, `b`, on all 2 ranks; freeze them")
        );
        let some = text(vec![
            Gradients::Complete,
            missing(&["a"]),
            Gradients::Unknown,
        ]);
        assert!(
            some.starts_with(&format!(
                "{start}`a` on rank 1; rank 0 had them and waited for the others; \
                 of rank 2 nothing is known; a branch that only some ranks take"
            )),
            "{some}"
        );
        let different = text(vec![missing(&["a"]), missing(&["b"]), missing(&["a"])]);
        assert_eq!(
            different,
            format!("{start}`a` on ranks 0, 2; `b` on rank 1; freeze them")
        );
    }
}
