//! What a person reads of a difference.

use std::fmt::Write as _;

use super::compared::{Difference, TensorDifference, Values};

/// How many lines each list has before it only counts.
const LISTED: usize = 20;

/// The text for stdout.
pub(super) fn text(difference: &Difference) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    list(
        &mut text,
        &format!("only in `{}`", difference.a),
        &difference.only_a,
        |name| name.clone(),
    );
    list(
        &mut text,
        &format!("only in `{}`", difference.b),
        &difference.only_b,
        |name| name.clone(),
    );
    list(&mut text, "different", &difference.tensors, tensor);
    let verdict = if difference.equal {
        format!("equal: {} tensors", difference.compared)
    } else {
        format!(
            "different: {} of {} tensors in both, {} only in the first, {} only in the second",
            difference.tensors.len(),
            difference.compared,
            difference.only_a.len(),
            difference.only_b.len()
        )
    };
    let _ = writeln!(text, "{verdict}");
    text
}

fn list<T>(text: &mut String, title: &str, items: &[T], line: impl Fn(&T) -> String) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for item in items.iter().take(LISTED) {
        let _ = writeln!(text, "  {}", line(item));
    }
    if items.len() > LISTED {
        let _ = writeln!(
            text,
            "  and {} more; `--json` has all",
            items.len() - LISTED
        );
    }
    let _ = writeln!(text);
}

fn tensor(found: &TensorDifference) -> String {
    let mut parts = Vec::new();
    if found.dtype_a != found.dtype_b {
        parts.push(format!("type {} and {}", found.dtype_a, found.dtype_b));
    }
    if found.shape_a != found.shape_b {
        parts.push(format!("shape {:?} and {:?}", found.shape_a, found.shape_b));
    }
    if let Some(values) = &found.values {
        parts.push(numbers(values));
    }
    format!("{}: {}", found.name, parts.join("; "))
}

fn numbers(values: &Values) -> String {
    let mut text = format!("{} of {} numbers differ", values.different, values.elements);
    if values.beyond_tolerance != values.different {
        let _ = write!(text, ", {} beyond the tolerance", values.beyond_tolerance);
    }
    if let (Some(absolute), Some(relative)) = (values.max_absolute, values.max_relative)
        && values.different > 0
    {
        let _ = write!(
            text,
            ", at most {absolute:.3e} apart ({relative:.3e} of the larger)"
        );
    }
    if values.nan_a + values.nan_b > 0 {
        let _ = write!(text, ", NaN {} and {}", values.nan_a, values.nan_b);
    }
    if values.infinite > 0 {
        let _ = write!(text, ", {} differ by an infinity", values.infinite);
    }
    text
}
