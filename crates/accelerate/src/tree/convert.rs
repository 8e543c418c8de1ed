//! Trees on another device or of another kind.

use tch::{Device, Kind, Tensor};

use super::{Tree, TreePath};
use crate::Result;

/// How [`send_to_device`] moves tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Whether the CPU goes on while data is copied; needs pinned memory to be of use.
    pub non_blocking: bool,
    /// Fields and map keys, at any depth, whose tensors stay where they are.
    pub skip_keys: Vec<String>,
}

/// Moves every tensor to a device; those that are there already stay the same.
///
/// # Errors
/// If there is no such device, or not enough memory on it.
///
/// # Source
/// `accelerate.utils.send_to_device`. Differs: `skip_keys` holds for named fields too.
pub fn send_to_device<T: Tree>(mut tree: T, device: Device, options: &SendOptions) -> Result<T> {
    visit_except(&mut tree, &options.skip_keys, &mut |leaf| {
        if leaf.device() != device {
            *leaf = leaf.f_to_device_(device, leaf.f_kind()?, options.non_blocking, false)?;
        }
        Ok(())
    })?;
    Ok(tree)
}

fn visit_except(
    tree: &mut dyn Tree,
    skip_keys: &[String],
    leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>,
) -> Result<()> {
    tree.visit_paths_mut(&TreePath::root(), &mut |path, tensor| {
        if skip_keys.iter().any(|key| path.passes(key)) {
            return Ok(());
        }
        leaf(tensor)
    })
}

/// Casts tensors of `Half` and `BFloat16` to `Float`; others stay as they are.
///
/// # Errors
/// If memory is not enough.
///
/// # Source
/// `accelerate.utils.convert_to_fp32`.
pub fn convert_to_fp32<T: Tree>(tree: T) -> Result<T> {
    cast(tree, Kind::Float, |kind| {
        matches!(kind, Kind::Half | Kind::BFloat16)
    })
}

/// Casts every tensor of floating point to `kind`; others stay as they are.
///
/// # Errors
/// If memory is not enough.
pub fn convert_floating<T: Tree>(tree: T, kind: Kind) -> Result<T> {
    cast(tree, kind, |kind| {
        matches!(
            kind,
            Kind::Half | Kind::BFloat16 | Kind::Float | Kind::Double
        )
    })
}

fn cast<T: Tree>(mut tree: T, to: Kind, applies: impl Fn(Kind) -> bool) -> Result<T> {
    tree.visit_mut(&mut |leaf: &mut Tensor| {
        let kind = leaf.f_kind()?;
        if kind != to && applies(kind) {
            *leaf = leaf.f_to_kind(to)?;
        }
        Ok(())
    })?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn tree() -> HashMap<&'static str, (Tensor, Option<Tensor>)> {
        let half = |value: f32| Tensor::from(value).to_kind(Kind::Half);
        HashMap::from([
            ("kept", (half(1.0), Some(Tensor::from(2i64)))),
            ("moved", (half(3.0), Some(Tensor::from(4.0f64)))),
        ])
    }

    #[test]
    fn only_short_floats_become_fp32() -> Result<()> {
        let tree = convert_to_fp32(tree())?;
        let kinds = |key: &str| {
            let (first, second) = &tree[key];
            (first.kind(), second.as_ref().map(Tensor::kind))
        };
        assert_eq!(kinds("kept"), (Kind::Float, Some(Kind::Int64)));
        assert_eq!(kinds("moved"), (Kind::Float, Some(Kind::Double)));
        Ok(())
    }

    #[test]
    fn every_float_becomes_the_wanted_kind_and_nothing_else_does() -> Result<()> {
        let tree = convert_floating(tree(), Kind::BFloat16)?;
        let (first, second) = &tree["moved"];
        assert_eq!(
            (first.kind(), second.as_ref().map(Tensor::kind)),
            (Kind::BFloat16, Some(Kind::BFloat16))
        );
        assert_eq!(tree["kept"].1.as_ref().map(Tensor::kind), Some(Kind::Int64));
        Ok(())
    }

    #[test]
    fn skipped_keys_stay_as_they_are_at_any_depth() -> Result<()> {
        // Every machine has a CPU and no second device: another change stands for the move.
        let mut tree = vec![tree()];
        visit_except(&mut tree, &["kept".to_owned()], &mut |leaf| {
            *leaf = leaf.f_add_scalar(10)?;
            Ok(())
        })?;
        assert_eq!(tree[0]["kept"].0.double_value(&[]), 1.0);
        assert_eq!(tree[0]["moved"].0.double_value(&[]), 13.0);
        let tree = send_to_device(tree, Device::Cpu, &SendOptions::default())?;
        assert_eq!(tree[0]["moved"].0.device(), Device::Cpu);
        Ok(())
    }
}
