//! Whether all ranks brought the same model.
//!
//! The collectives are PyTorch's own, so that a rank may be one of Python's. Names and what
//! else PyTorch does not compare are compared over the store: each rank counts its model in
//! before the first collective, so that after it the counts are complete.

use std::fmt::Write as _;
use std::time::Duration;

use accelerate_torch::{Error as TorchError, ProcessGroup, Store, verify_parameters};
use tch::Tensor;

use crate::collectives::Call;
use crate::nn::Module;
use crate::{Error, Result};

/// How long ranks that have all found a difference may take to say what they have.
const ANSWER: Duration = Duration::from_secs(10);

/// Checks that all ranks have tensors of the same names, kinds and shapes.
///
/// `trained` are the parameters that PyTorch compares, with their names.
///
/// # Collective
/// Every rank calls this, and every rank that runs this library gets the same answer. Ranks
/// of Python compare the shapes of `trained` with rank 0's.
pub(in crate::parallel) fn same_model(
    group: &ProcessGroup,
    module: &dyn Module,
    trained: &[(String, Tensor)],
    call: Call,
) -> Result<()> {
    let own = describe(module)?;
    let ballot = Ballot {
        store: group.store(),
        topic: format!("accelerate/models/{}", call.number),
    };
    let vote = format!("{:016x}", hash(own.as_bytes()));
    ballot.cast(&vote)?;
    let tensors: Vec<Tensor> = trained.iter().map(|(_, t)| t.shallow_clone()).collect();
    let verified = verify_parameters(group, &tensors);
    if let Err(error @ (TorchError::Timeout { .. } | TorchError::ConnectionLost { .. })) = verified
    {
        return Err(error.into());
    }
    if !ballot.is_unanimous(&vote)? {
        let models = ballot.opinions(group, &own)?;
        if let Some(difference) = first_difference(&models) {
            return Err(difference);
        }
    }
    verified.map_err(|error| differs_from_rank_0(group.rank(), trained, error))
}

/// A question to all ranks of this library, put over the store.
struct Ballot<'a> {
    store: &'a Store,
    topic: String,
}

impl Ballot<'_> {
    fn cast(&self, vote: &str) -> Result<()> {
        self.store.add(&self.topic, 1)?;
        self.store.add(&format!("{}/{vote}", self.topic), 1)?;
        Ok(())
    }

    /// Whether all votes are this one. Call when all have voted.
    fn is_unanimous(&self, vote: &str) -> Result<bool> {
        let same = self.store.add(&format!("{}/{vote}", self.topic), 0)?;
        Ok(same == self.store.add(&self.topic, 0)?)
    }

    /// What every rank has; `None` of those of Python, and of one that is gone.
    fn opinions(&self, group: &ProcessGroup, own: &str) -> Result<Vec<Option<String>>> {
        let key = |rank: usize| format!("{}/of/{rank}", self.topic);
        self.store.set(&key(group.rank()), own.as_bytes())?;
        let voters = self.store.add(&self.topic, 0)?;
        let all_known = usize::try_from(voters).is_ok_and(|voters| voters == group.size());
        Ok((0..group.size())
            .map(|rank| {
                // Who has voted found the same difference and answers soon.
                let patience = if all_known { ANSWER } else { ANSWER / 10 };
                self.store.get_text(&key(rank), patience).ok()
            })
            .collect())
    }
}

/// PyTorch's own finding, with the name of the parameter that it knows by its number.
fn differs_from_rank_0(rank: usize, trained: &[(String, Tensor)], error: TorchError) -> Error {
    let text = error.to_string();
    let number = text
        .split_once("params[")
        .and_then(|(_, rest)| rest.split_once(']'));
    let parameter = number
        .and_then(|(number, _)| number.parse::<usize>().ok())
        .and_then(|number| trained.get(number));
    match parameter {
        Some((name, tensor)) => Error::ModelsDiffer {
            base: 0,
            rank,
            expected: format!("`{name}` with another shape"),
            found: format!("`{name}`: {:?}", tensor.size()),
        },
        None => error.into(),
    }
}

/// A line for each tensor.
fn describe(module: &dyn Module) -> Result<String> {
    let mut text = String::new();
    for (name, parameter) in module.named_parameters() {
        let tensor = parameter.tensor();
        let frozen = if parameter.requires_grad() {
            ""
        } else {
            "frozen "
        };
        let (kind, shape) = (tensor.f_kind()?, tensor.size());
        let _ = writeln!(text, "`{name}`: {frozen}{kind:?} {shape:?}");
    }
    for (name, buffer) in module.named_buffers() {
        let (kind, shape) = (buffer.tensor().f_kind()?, buffer.tensor().size());
        let _ = writeln!(text, "buffer `{name}`: {kind:?} {shape:?}");
    }
    Ok(text)
}

/// The first tensor that another rank has in place of the first rank's whose model is known.
fn first_difference(models: &[Option<String>]) -> Option<Error> {
    let known = |(rank, model): (usize, &'_ Option<String>)| Some((rank, model.clone()?));
    let mut models = models.iter().enumerate().filter_map(known);
    let (base, first) = models.next()?;
    let (rank, other) = models.find(|(_, other)| *other != first)?;
    let (mut expected, mut found) = (first.lines(), other.lines());
    loop {
        let (expected, found) = (expected.next(), found.next());
        if expected != found || expected.is_none() {
            let or_none = |line: Option<&str>| line.unwrap_or("no further tensor").to_owned();
            return Some(Error::ModelsDiffer {
                base,
                rank,
                expected: or_none(expected),
                found: or_none(found),
            });
        }
    }
}

/// FNV-1a: the same number for the same text, whatever program a rank runs.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tensor_that_differs_is_named() {
        let same = "`a`: Float [1]\n`b`: Float [2]\n";
        let differ = |other: &str| {
            let models = [same, same, other].map(|model| Some(model.to_owned()));
            first_difference(&models).map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(differ(same), "");
        let error = differ("`a`: Float [1]\n`b`: Float [3]\n");
        assert!(
            error.contains("expected `b`: Float [2] as on rank 0, found `b`: Float [3] on rank 2"),
            "{error}"
        );
        assert!(differ("`a`: Float [1]\n").contains("found no further tensor"));
        // Of a rank of Python nothing is known.
        let of_python = [
            None,
            Some(same.to_owned()),
            Some("`a`: Half [1]\n".to_owned()),
        ];
        let error = first_difference(&of_python).map_or_else(String::new, |e| e.to_string());
        assert!(
            error.contains("as on rank 1, found `a`: Half [1] on rank 2"),
            "{error}"
        );
    }
}
