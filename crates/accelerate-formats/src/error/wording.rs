//! Lists and counts in messages.

use super::MissingTensor;

/// How many names a message lists before it only counts.
const LISTED: usize = 8;

pub(super) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}

pub(super) fn next_of(expected: Option<&str>) -> String {
    expected.map_or_else(
        || "no more tensors".to_owned(),
        |name| format!("tensor `{name}`"),
    )
}

pub(super) fn count(tensors: usize) -> String {
    if tensors == 1 {
        "1 tensor is".to_owned()
    } else {
        format!("{tensors} tensors are")
    }
}

pub(super) fn listed(missing: &[MissingTensor]) -> String {
    join(
        missing
            .iter()
            .map(|m| format!("`{}` in `{}`", m.tensor, m.shard)),
    )
}

pub(super) fn quoted(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    join(names.iter().map(|name| format!("`{name}`")))
}

fn join(items: impl ExactSizeIterator<Item = String>) -> String {
    let rest = items.len().saturating_sub(LISTED);
    let mut text = items.take(LISTED).collect::<Vec<_>>().join(", ");
    if rest > 0 {
        text.push_str(&format!(" and {rest} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_end_in_a_count() {
        let names: Vec<String> = (0..10).map(|n| format!("t{n}")).collect();
        assert_eq!(quoted(&names[..2]), "`t0`, `t1`");
        assert!(
            quoted(&names).ends_with("`t7` and 2 more"),
            "{}",
            quoted(&names)
        );
        assert_eq!(quoted(&[]), "nothing");
    }
}
