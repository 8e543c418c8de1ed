//! The numbers of one run, and how two runs compare.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;

/// The first steps of a run, which also fill caches and pools; they are not counted.
const WARM_UP: usize = 5;

/// What one run measured about itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    /// From the start of the launcher to the end of the first step, in seconds.
    pub(super) first_step_s: f64,
    /// Each step, in seconds, in order.
    pub(super) step_s: Vec<f64>,
    /// The most memory each rank ever had, in bytes.
    pub(super) peak_rss_bytes: Vec<f64>,
}

/// The two runs of one round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    /// Our run.
    pub(super) ours: Run,
    /// The original's run.
    pub(super) original: Run,
}

impl Run {
    /// Reads the file that a run wrote.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |what: &str| {
            Failure::new(format!("`{}` {what}", path.display()))
                .hint("each side writes `first_step_s`, `step_s` and `peak_rss_bytes` there")
        };
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::because("the run wrote no numbers", error))?;
        let value: Value = serde_json::from_str(&text).map_err(|_| failed("holds no JSON"))?;
        let numbers = |name: &str| -> Option<Vec<f64>> {
            let list: Option<Vec<f64>> =
                value[name].as_array()?.iter().map(Value::as_f64).collect();
            list.filter(|list| !list.is_empty())
        };
        Ok(Self {
            first_step_s: value["first_step_s"]
                .as_f64()
                .ok_or_else(|| failed("lacks the number `first_step_s`"))?,
            step_s: numbers("step_s").ok_or_else(|| failed("lacks the numbers `step_s`"))?,
            peak_rss_bytes: numbers("peak_rss_bytes")
                .ok_or_else(|| failed("lacks the numbers `peak_rss_bytes`"))?,
        })
    }

    /// The median step after the warm-up, in seconds; of all steps where there are too few.
    pub(super) fn median_step_s(&self) -> f64 {
        median(
            self.step_s
                .get(WARM_UP..)
                .filter(|rest| !rest.is_empty())
                .unwrap_or(&self.step_s),
        )
    }

    /// The peak memory of the rank that had most, in bytes.
    pub(super) fn peak_bytes(&self) -> f64 {
        self.peak_rss_bytes.iter().copied().fold(0.0, f64::max)
    }
}

/// The middle value; the mean of the two middle ones where their number is even. Zero of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (
        sorted.get(middle),
        middle.checked_sub(1).and_then(|before| sorted.get(before)),
    ) {
        (Some(upper), Some(lower)) if sorted.len().is_multiple_of(2) => {
            f64::midpoint(*lower, *upper)
        }
        (Some(value), _) => *value,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0]), 5.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 100.0]), 3.5);
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let mut run = Run {
            first_step_s: 1.0,
            step_s: vec![9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0],
            peak_rss_bytes: vec![5.0, 7.0],
        };
        assert_eq!(run.median_step_s(), 2.0);
        assert_eq!(run.peak_bytes(), 7.0);
        run.step_s.truncate(5);
        assert_eq!(run.median_step_s(), 9.0);
    }

    #[test]
    fn a_run_without_its_numbers_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        assert!(Run::read(&path).is_err());
        for (text, word) in [
            ("{", "holds no JSON"),
            ("{\"step_s\": [1]}", "`first_step_s`"),
            ("{\"first_step_s\": 1, \"step_s\": []}", "`step_s`"),
            (
                "{\"first_step_s\": 1, \"step_s\": [1], \"peak_rss_bytes\": [\"x\"]}",
                "`peak_rss",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let error = Run::read(&path).unwrap_err().render();
            assert!(error.contains(word), "{error}");
        }
        fs::write(
            &path,
            "{\"first_step_s\": 1.5, \"step_s\": [1], \"peak_rss_bytes\": [2, 3]}",
        )
        .unwrap();
        assert_eq!(Run::read(&path).unwrap().peak_rss_bytes, [2.0, 3.0]);
    }
}
