//! Rows of values: one for each step.

use crate::clock::unix_seconds;
use crate::value::{Value, Values, not_finite_text};

/// The values of one step, with `_step`, `_runtime` and `_timestamp`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) step: i64,
    pub(super) values: Values,
}

/// Puts the values of one step together, and knows the last of each name.
#[derive(Debug)]
pub(super) struct History {
    started: f64,
    step: i64,
    pending: Values,
    summary: Values,
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            started: unix_seconds(),
            step: 0,
            pending: Values::new(),
            summary: Values::new(),
        }
    }

    /// The step of the row that is being filled.
    pub(super) fn step(&self) -> i64 {
        self.step
    }

    /// The last value of each name.
    pub(super) fn summary(&self) -> &Values {
        &self.summary
    }

    /// Adds values; gives the rows that they complete.
    ///
    /// Without a step they complete the row that is being filled, and the next row has the next step.
    pub(super) fn log(&mut self, values: &Values, step: Option<i64>) -> Vec<Row> {
        let mut rows = Vec::new();
        if let Some(step) = step {
            if step < self.step {
                tracing::warn!(
                    "`wandb` takes no step below the last one: values of step {step} are dropped, the run is \
                     at {}",
                    self.step
                );
                return rows;
            }
            if step > self.step {
                rows.extend(self.flush());
                self.step = step;
            }
        }
        for (name, value) in values.iter() {
            self.pending.insert(name, value.clone());
        }
        if step.is_none() {
            rows.extend(self.flush());
            self.step += 1;
        }
        rows
    }

    /// The row that is being filled, if it holds anything.
    pub(super) fn flush(&mut self) -> Option<Row> {
        if self.pending.is_empty() {
            return None;
        }
        let now = unix_seconds();
        let mut values = std::mem::take(&mut self.pending);
        values.insert("_step", self.step);
        values.insert("_runtime", now - self.started);
        values.insert("_timestamp", now);
        for (name, value) in values.iter() {
            self.summary.insert(name, value.clone());
        }
        Some(Row {
            step: self.step,
            values,
        })
    }
}

/// JSON as the service reads it: numbers that are not finite are bare words.
pub(super) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Float(number) => match not_finite_text(*number) {
            Some(word) => text.push_str(word),
            None => text.push_str(&value.to_json().to_string()),
        },
        Value::List(items) => {
            text.push('[');
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Map(values) => {
            text.push('{');
            for (number, (name, value)) in values.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name).to_json().to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        plain => text.push_str(&plain.to_json().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(rows: &[Row]) -> Vec<i64> {
        rows.iter().map(|row| row.step).collect()
    }

    #[test]
    fn values_of_one_step_make_one_row() {
        let mut history = History::new();
        let value = |name: &str| Values::from([(name, 1)]);
        assert!(history.log(&value("a"), Some(0)).is_empty());
        assert!(history.log(&value("b"), Some(0)).is_empty());
        let rows = history.log(&value("a"), Some(5));
        assert_eq!(steps(&rows), [0]);
        assert!(rows[0].values.get("a").is_some() && rows[0].values.get("b").is_some());
        assert_eq!(rows[0].values.get("_step"), Some(&Value::Int(0)));
        assert!(
            history.log(&value("a"), Some(4)).is_empty(),
            "a lower step is dropped"
        );
        assert_eq!(steps(&history.log(&value("c"), None)), [5]);
        assert_eq!(steps(&history.log(&value("c"), None)), [6]);
        assert!(history.flush().is_none());
        assert_eq!(history.summary().get("_step"), Some(&Value::Int(6)));
    }

    #[test]
    fn words_for_what_is_not_finite_are_bare() {
        let values = Values::new().with("n", f64::NAN).with(
            "l",
            vec![Value::from(f64::NEG_INFINITY), Value::from("a\"b")],
        );
        assert_eq!(
            json_text(&Value::Map(values)),
            r#"{"n":NaN,"l":[-Infinity,"a\"b"]}"#
        );
    }
}
