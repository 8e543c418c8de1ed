//! The numbers of one run, and how two runs compare.

use std::fs;
use std::path::{Path, PathBuf};

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
    /// Reads what the ranks of a run wrote: `PATH.rank0.json` and so on. Times are rank 0's.
    pub(super) fn read(path: &Path, ranks: usize) -> Result<Self, Failure> {
        let all = (0..ranks)
            .map(|rank| Self::read_rank(&rank_file(path, rank)))
            .collect::<Result<Vec<_>, _>>()?;
        let peak_rss_bytes = all
            .iter()
            .flat_map(|run| run.peak_rss_bytes.clone())
            .collect();
        let first = all
            .into_iter()
            .next()
            .ok_or_else(|| Failure::new("a run of no ranks"))?;
        Ok(Self {
            peak_rss_bytes,
            ..first
        })
    }

    fn read_rank(path: &Path) -> Result<Self, Failure> {
        let failed = |what: &str| {
            Failure::new(format!("`{}` {what}", path.display()))
                .hint("each rank writes `first_step_s`, `step_s` and `peak_rss_bytes` there")
        };
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::because(format!("no numbers in `{}`", path.display()), error)
        })?;
        let value: Value = serde_json::from_str(&text).map_err(|_| failed("holds no JSON"))?;
        let number = |name: &str| {
            let number = value[name].as_f64();
            number.ok_or_else(|| failed(&format!("lacks the number `{name}`")))
        };
        let steps: Option<Vec<f64>> = value["step_s"]
            .as_array()
            .and_then(|list| list.iter().map(Value::as_f64).collect());
        Ok(Self {
            first_step_s: number("first_step_s")?,
            step_s: steps
                .filter(|steps| !steps.is_empty())
                .ok_or_else(|| failed("lacks the numbers `step_s`"))?,
            peak_rss_bytes: vec![number("peak_rss_bytes")?],
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

/// Where a rank of the run at `path` writes.
pub(super) fn rank_file(path: &Path, rank: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".rank{rank}.json"));
    PathBuf::from(name)
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
        let path = dir.path().join("run");
        assert!(Run::read(&path, 1).is_err());
        for (text, word) in [
            ("{", "holds no JSON"),
            ("{\"step_s\": [1]}", "`first_step_s`"),
            ("{\"first_step_s\": 1, \"step_s\": []}", "`step_s`"),
            (
                "{\"first_step_s\": 1, \"step_s\": [1], \"peak_rss_bytes\": \"x\"}",
                "`peak_rss",
            ),
        ] {
            fs::write(rank_file(&path, 0), text).unwrap();
            let error = Run::read(&path, 1).unwrap_err().render();
            assert!(error.contains(word), "{error}");
        }
        for (rank, peak) in [2, 3].iter().enumerate() {
            let text =
                format!("{{\"first_step_s\": 1.5, \"step_s\": [1], \"peak_rss_bytes\": {peak}}}");
            fs::write(rank_file(&path, rank), text).unwrap();
        }
        assert_eq!(Run::read(&path, 2).unwrap().peak_rss_bytes, [2.0, 3.0]);
        assert!(Run::read(&path, 3).is_err());
    }
}
