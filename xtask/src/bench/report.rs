//! The table of ratios, for the terminal and for `docs/performance.md`.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::Path;
use std::thread;

use crate::failure::Failure;

use super::measurement::{Pair, Run, median};

/// The tables in the document, by the name in the marks around each.
#[derive(Debug, Clone, Copy)]
pub(super) enum Table {
    /// The training job.
    Job,
    /// Starts of commands.
    CommandLine,
    /// The parts of a training loop.
    TrainingCore,
    /// Models one by one.
    Models,
    /// Saving and loading the state of a training.
    Checkpoint,
    /// Merging of sharded weights.
    MergeWeights,
    /// Training in shards.
    Sharded,
    /// Models larger than memory.
    BigModels,
}

impl Table {
    /// What stands before and after the table.
    fn marks(self) -> (String, String) {
        let name = match self {
            Self::Job => "bench-peers",
            Self::CommandLine => "bench-peers --command-line",
            Self::TrainingCore => "bench-peers --training-core",
            Self::Models => "bench-peers --models",
            Self::Checkpoint => "bench-peers --checkpoint",
            Self::MergeWeights => "bench-peers --merge-weights",
            Self::Sharded => "bench-peers --sharded",
            Self::BigModels => "bench-peers --big-models",
        };
        (
            format!("<!-- {name}: begin -->"),
            format!("<!-- {name}: end -->"),
        )
    }
}

/// One line of the table: what is measured, in which unit, and the ratio it must not exceed.
struct Measure {
    name: &'static str,
    unit: &'static str,
    /// How many of the base unit make one of `unit`.
    scale: f64,
    of: fn(&Run) -> f64,
    goal: f64,
}

const MEASURES: [Measure; 3] = [
    Measure {
        name: "launch to end of first step",
        unit: "s",
        scale: 1.0,
        of: |run| run.first_step_s,
        goal: 1.0 / 15.0,
    },
    Measure {
        name: "median step",
        unit: "ms",
        scale: 1e-3,
        of: Run::median_step_s,
        goal: 1.0,
    },
    Measure {
        name: "peak memory of a rank",
        unit: "MiB",
        scale: 1_048_576.0,
        of: Run::peak_bytes,
        goal: 0.8,
    },
];

/// The table in Markdown. Each ratio is the median of the rounds' ratios, with the least and the
/// greatest of them.
pub(super) fn table(pairs: &[Pair]) -> String {
    let mut text = format!(
        "{}; 2 processes of 1 thread; rounds: {}\n\n",
        machine(),
        pairs.len()
    );
    text += "| measure | ours | original | ratio | range | goal | met |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for measure in MEASURES {
        text += &line(&measure, pairs);
    }
    text
}

fn line(measure: &Measure, pairs: &[Pair]) -> String {
    let ours: Vec<f64> = pairs.iter().map(|pair| (measure.of)(&pair.ours)).collect();
    let original: Vec<f64> = pairs
        .iter()
        .map(|pair| (measure.of)(&pair.original))
        .collect();
    format!(
        "| {} ({}) | {:.2} | {:.2} {}\n",
        measure.name,
        measure.unit,
        median(&ours) / measure.scale,
        median(&original) / measure.scale,
        ratio_cells(&ours, &original, Some(measure.goal))
    )
}

/// The last cells of a line: the median of the rounds' ratios, their range, the ratio that must
/// not be exceeded, and whether it is not.
pub(super) fn ratio_cells(ours: &[f64], original: &[f64], goal: Option<f64>) -> String {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(original)
        .map(|(ours, other)| ours / other)
        .collect();
    let ratio = median(&ratios);
    let (least, greatest) = range(&ratios);
    let goal = match goal {
        Some(goal) if ratio <= goal => format!(" {goal:.3} | yes |"),
        Some(goal) => format!(" {goal:.3} | no |"),
        None => " | |".to_owned(),
    };
    format!("| {ratio:.3} | {least:.3} to {greatest:.3} |{goal}")
}

/// The least and the greatest.
pub(super) fn range(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(*value), high.max(*value))
        })
}

/// What was measured on, in words.
pub(super) fn machine() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    format!("{} on {OS}, {cores} cores", processor())
}

/// The name of the processor where the system tells it, else its kind.
fn processor() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            line.split_once(':').map(|(_, name)| name.trim().to_owned())
        })
        .unwrap_or_else(|| ARCH.to_owned())
}

/// Puts the table into the document, in the place of an older one if there is one.
pub(super) fn write(path: &Path, which: Table, table: &str) -> Result<(), Failure> {
    let failed = |error| Failure::because(format!("cannot write `{}`", path.display()), error);
    let old = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Performance\n".to_owned(),
        Err(error) => return Err(failed(error)),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, with_table(&old, which, table)).map_err(failed)
}

fn with_table(document: &str, which: Table, table: &str) -> String {
    let (begin, end) = which.marks();
    let block = format!("{begin}\n{table}{end}");
    let around = document
        .split_once(&begin)
        .and_then(|(before, rest)| rest.split_once(&end).map(|(_, after)| (before, after)));
    match around {
        Some((before, after)) => format!("{before}{block}{after}"),
        None => format!("{}\n\n{block}\n", document.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: f64, step: f64, peak: f64) -> Run {
        Run {
            first_step_s: first,
            step_s: vec![step; 8],
            peak_rss_bytes: vec![peak, peak / 2.0],
        }
    }

    #[test]
    fn each_measure_has_its_ratio_and_goal() {
        let mib = 1_048_576.0;
        let pairs = [
            Pair {
                ours: run(0.5, 0.1, 600.0 * mib),
                original: run(10.0, 0.125, 1000.0 * mib),
            },
            Pair {
                ours: run(0.6, 0.3, 900.0 * mib),
                original: run(10.0, 0.2, 1000.0 * mib),
            },
            Pair {
                ours: run(0.5, 0.2, 900.0 * mib),
                original: run(10.0, 0.2, 1000.0 * mib),
            },
        ];
        let text = table(&pairs);
        let wanted = [
            "| launch to end of first step (s) | 0.50 | 10.00 | 0.050 | 0.050 to 0.060 | 0.067 | yes |",
            "| median step (ms) | 200.00 | 200.00 | 1.000 | 0.800 to 1.500 | 1.000 | yes |",
            "| peak memory of a rank (MiB) | 900.00 | 1000.00 | 0.900 | 0.600 to 0.900 | 0.800 | no |",
        ];
        for line in wanted {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_new_table_takes_the_place_of_the_old_one_and_nothing_else() {
        let first = with_table("# Performance\n\nWords.\n", Table::Job, "old\n");
        let more = first.clone() + "\nMore words.\n";
        let second = with_table(&more, Table::Job, "new\n");
        assert!(first.contains("old") && first.contains("Words."));
        assert!(second.contains("new") && !second.contains("old"));
        assert!(second.contains("Words.") && second.ends_with("\nMore words.\n"));
        let both = with_table(&second, Table::CommandLine, "commands\n");
        assert!(both.starts_with(second.trim_end()) && both.contains("commands"));
        let again = with_table(&both, Table::Job, "newest\n");
        assert!(again.contains("newest") && again.contains("commands"));
    }
}
