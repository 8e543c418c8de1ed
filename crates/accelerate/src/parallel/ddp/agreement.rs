//! Whether all ranks brought the same model.

use std::fmt::Write as _;

use accelerate_torch::{Backend, ProcessGroup, verify_parameters};
use tch::Tensor;

use crate::nn::Module;
use crate::{Error, Result};

/// Checks that all ranks have tensors of the same names, kinds and shapes.
///
/// # Collective
/// Every rank calls this, and every rank gets the same answer.
pub(super) fn same_model(group: &ProcessGroup, module: &dyn Module) -> Result<()> {
    if group.backend() == Backend::Nccl {
        // Texts travel over the CPU's backend; without one, libtorch compares shapes.
        let trained: Vec<Tensor> = module
            .parameters()
            .iter()
            .filter(|parameter| parameter.requires_grad())
            .map(|parameter| parameter.tensor().shallow_clone())
            .collect();
        return Ok(verify_parameters(group, &trained)?);
    }
    let own = describe(module)?;
    let hashes = group.all_gather_bytes(&hash(own.as_bytes()).to_le_bytes())?;
    if hashes.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(());
    }
    let models = group.all_gather_bytes(own.as_bytes())?;
    let models: Vec<_> = models.iter().map(|m| String::from_utf8_lossy(m)).collect();
    first_difference(&models).map_or(Ok(()), Err)
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

fn first_difference(models: &[std::borrow::Cow<'_, str>]) -> Option<Error> {
    let first = models.first()?;
    let (rank, other) = models
        .iter()
        .enumerate()
        .find(|(_, other)| *other != first)?;
    let (mut expected, mut found) = (first.lines(), other.lines());
    loop {
        let (expected, found) = (expected.next(), found.next());
        if expected != found || expected.is_none() {
            let or_none = |line: Option<&str>| line.unwrap_or("no further tensor").to_owned();
            return Some(Error::ModelsDiffer {
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
            first_difference(&[same.into(), same.into(), other.into()])
                .map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(differ(same), "");
        let error = differ("`a`: Float [1]\n`b`: Float [3]\n");
        assert!(
            error.contains("expected `b`: Float [2] as on rank 0, found `b`: Float [3] on rank 2"),
            "{error}"
        );
        assert!(differ("`a`: Float [1]\n").contains("found no further tensor"));
    }
}
