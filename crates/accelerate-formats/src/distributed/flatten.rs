//! Flat names for nested values, by PyTorch's rule.

use super::description::PathPart;
use crate::value::Value;

/// A value that is not taken apart further, and the way to it.
#[derive(Debug, Clone, Copy)]
pub struct FlatValue<'a> {
    path: &'a [PathPart],
    value: &'a Value,
}

impl<'a> FlatValue<'a> {
    /// The name in a checkpoint: all parts of the way joined by dots.
    pub fn name(&self) -> String {
        let parts = self.path.iter().map(|part| match part {
            PathPart::Key(key) => key.clone(),
            PathPart::Index(index) => index.to_string(),
        });
        parts.collect::<Vec<_>>().join(".")
    }

    /// The way to it.
    pub fn path(&self) -> &'a [PathPart] {
        self.path
    }

    /// The value.
    pub fn value(&self) -> &'a Value {
        self.value
    }
}

/// Walks through a nested value and hands out what becomes an entry of a checkpoint.
///
/// Dicts are taken apart, their keys turned into text; lists only if they hold a tensor or a dict;
/// everything else stays whole. PyTorch puts a checkpoint together by the same rule, and misses
/// entries that were named by another.
///
/// # Errors
/// The first error of `each` ends the walk.
///
/// # Source
/// `torch.distributed.checkpoint._nested_dict.flatten_state_dict`.
pub fn flatten<E>(
    value: &Value,
    mut each: impl FnMut(FlatValue<'_>) -> Result<(), E>,
) -> Result<(), E> {
    walk(value, &mut Vec::new(), &mut each)
}

fn walk<E>(
    value: &Value,
    path: &mut Vec<PathPart>,
    each: &mut impl FnMut(FlatValue<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match value {
        Value::Dict(dict) if !dict.is_empty() => {
            for (key, value) in dict.iter() {
                path.push(PathPart::Key(key_text(key)));
                walk(value, path, each)?;
                path.pop();
            }
            Ok(())
        }
        Value::List(items) | Value::Tuple(items) if items.iter().any(is_taken_apart) => {
            for (index, value) in items.iter().enumerate() {
                path.push(PathPart::Index(index));
                walk(value, path, each)?;
                path.pop();
            }
            Ok(())
        }
        _ => each(FlatValue { path, value }),
    }
}

fn is_taken_apart(value: &Value) -> bool {
    match value {
        Value::Tensor(_) | Value::Dict(_) => true,
        Value::List(items) | Value::Tuple(items) => items.iter().any(is_taken_apart),
        _ => false,
    }
}

fn key_text(key: &Value) -> String {
    match key {
        Value::Str(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::value::Dict;

    #[test]
    fn lists_are_taken_apart_only_around_dicts_and_tensors() {
        let group = Dict::new().with("lr", 0.5).with("params", vec!["w".into()]);
        let state = Dict::new().with(0, Dict::new().with("step", 3));
        let value = Dict::new()
            .with("state", state)
            .with("param_groups", vec![Value::from(group)])
            .with("empty", Dict::new());
        let mut names = Vec::new();
        let walked: Result<(), Infallible> = flatten(&value.into(), |flat| {
            names.push(flat.name());
            Ok(())
        });
        assert_eq!(walked, Ok(()));
        let expected = [
            "state.0.step",
            "param_groups.0.lr",
            "param_groups.0.params",
            "empty",
        ];
        assert_eq!(names, expected);
    }
}
