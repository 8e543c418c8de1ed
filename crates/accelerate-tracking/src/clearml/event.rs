//! Events: numbers, pictures and tables of a task.

use serde_json::{Value as Json, json};

use crate::clock::unix_millis;
use crate::media::Table;

/// The iteration of a value that has no step.
const NO_STEP: i64 = -(1 << 31);

/// Title and series of a name.
pub(super) fn split(name: &str) -> (&str, &'static str) {
    for series in ["eval", "test", "train"] {
        let rest = name
            .strip_prefix(series)
            .and_then(|rest| rest.strip_prefix('_'));
        if let Some(title) = rest {
            return (title, series);
        }
    }
    (name, "train")
}

/// A number. One that is not finite becomes 0, as the service wants it.
pub(super) fn scalar(name: &str, value: f64, step: Option<i64>) -> Json {
    let value = if value.is_finite() { value } else { 0.0 };
    let (title, series, iteration) = match step {
        Some(step) => {
            let (title, series) = split(name);
            (title, series, step)
        }
        None => ("Summary", name, NO_STEP),
    };
    json!({
        "type": "training_stats_scalar",
        "iter": iteration,
        "metric": title,
        "variant": series,
        "value": value,
        "timestamp": unix_millis(),
    })
}

/// A table: one array for each column.
pub(super) fn table(name: &str, table: &Table, step: Option<i64>) -> Json {
    let (title, series) = split(name);
    let column = |number: usize| -> Vec<Json> {
        let cells = table.rows().iter().filter_map(|row| row.get(number));
        cells.map(crate::Value::to_json).collect()
    };
    let columns: Vec<Vec<Json>> = (0..table.columns().len()).map(column).collect();
    let plot = json!({
        "data": [{
            "type": "table",
            "header": { "values": table.columns() },
            "cells": { "values": columns },
        }],
        "layout": { "title": title },
    });
    json!({
        "type": "plot",
        "iter": step.unwrap_or(0),
        "metric": title,
        "variant": series,
        "plot_str": plot.to_string(),
        "timestamp": unix_millis(),
    })
}

/// A picture that lies at `url`.
pub(super) fn image(name: &str, url: &str, key: &str, step: Option<i64>) -> Json {
    let (title, series) = split(name);
    json!({
        "type": "training_debug_image",
        "iter": step.unwrap_or(0),
        "metric": title,
        "variant": series,
        "url": url,
        "key": key,
        "timestamp": unix_millis(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    #[test]
    fn names_are_split_by_their_prefix() {
        assert_eq!(split("train_loss"), ("loss", "train"));
        assert_eq!(split("eval_value"), ("value", "eval"));
        assert_eq!(split("loss"), ("loss", "train"));
        assert_eq!(split("training"), ("training", "train"));
        let single = scalar("single_value_1", 1.1, None);
        assert_eq!(single["metric"], "Summary");
        assert_eq!(
            (&single["variant"], &single["iter"]),
            (&json!("single_value_1"), &json!(NO_STEP))
        );
        assert_eq!(scalar("x", f64::NAN, Some(1))["value"], 0.0);
    }

    #[test]
    fn a_table_is_told_by_columns() {
        let row = |cells: [i64; 3]| cells.map(Value::from).to_vec();
        let table_of = Table::new(["a", "b", "c"], vec![row([1, 3, 5]), row([2, 4, 6])]).unwrap();
        let event = table("t", &table_of, None);
        let plot: Json = serde_json::from_str(event["plot_str"].as_str().unwrap()).unwrap();
        assert_eq!(
            plot["data"][0]["cells"]["values"],
            json!([[1, 2], [3, 4], [5, 6]])
        );
        assert_eq!(event["iter"], 0);
    }
}
