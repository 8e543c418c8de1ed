//! Runs as the tracker `local` writes them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use accelerate_tracking::{
    Values,
    run::{Outcome, RankWriter, RunInfo, RunWriter, Severity, StepMetrics, TimeSplit},
};

/// A run that is being written. It is left without a word when this goes.
pub(super) struct Written(pub(super) RunWriter);

impl Written {
    /// A run in `root`, of so many ranks, with settings.
    pub(super) fn new(root: &Path, ranks: usize, settings: &[(&str, f64)]) -> Self {
        let info = RunInfo {
            project: "demo".to_owned(),
            world_size: ranks,
            settings: settings.iter().copied().collect(),
            ..RunInfo::default()
        };
        Self(RunWriter::create(root, info).unwrap())
    }

    /// Its folder.
    pub(super) fn folder(&self) -> PathBuf {
        self.0.folder().to_owned()
    }

    /// The name of its folder.
    pub(super) fn id(&self) -> String {
        self.0.info().id.clone()
    }

    /// Logs a loss that falls, at these steps.
    pub(super) fn losses(&mut self, steps: std::ops::Range<i64>) {
        for step in steps {
            self.log(step, &[("loss", loss(step)), ("lr", 1e-3)]);
        }
    }

    pub(super) fn log(&mut self, step: i64, values: &[(&str, f64)]) {
        let values: Values = values.iter().copied().collect();
        self.0.log(&values, Some(step)).unwrap();
    }

    /// What a rank measured of a step: it computed for so many seconds of half a second.
    pub(super) fn rank(&self, rank: usize, step: i64, compute: f64) {
        let mut writer = RankWriter::open(self.0.folder(), rank).unwrap();
        let measured = StepMetrics {
            t: writer.elapsed(),
            step,
            seconds: 0.5,
            split: TimeSplit {
                data_wait: 0.05,
                compute,
                communication: 0.45 - compute,
                other: 0.0,
            },
            samples_per_second: Some(64.0),
            memory_bytes: Some(3 << 29),
            ..StepMetrics::default()
        };
        writer.write(&measured).unwrap();
    }

    pub(super) fn warn(&mut self, rank: usize, message: &str) {
        self.0.event(Severity::Warning, rank, message).unwrap();
    }

    /// Ends it; with a message it has failed.
    pub(super) fn finish(mut self, failure: Option<&str>) {
        let outcome = match failure {
            Some(_) => Outcome::Failed,
            None => Outcome::Finished,
        };
        self.0.finish(outcome, failure).unwrap();
    }
}

/// The loss of a step.
pub(super) fn loss(step: i64) -> f64 {
    2.0 / (1.0 + step as f64)
}

/// A folder that says it is a run and is none.
pub(super) fn broken(root: &Path, name: &str) {
    let folder = root.join(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("run.json"), "{\"format_version\": ").unwrap();
}

/// A run whose process was killed while it wrote a line, by a newer version.
pub(super) fn newer_and_cut(root: &Path) -> PathBuf {
    let mut run = Written::new(root, 1, &[("max_steps", 10.0)]);
    run.losses(0..3);
    let folder = run.folder();
    drop(run);
    let path = folder.join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace("\"format_version\": 1", "\"format_version\": 99"),
    )
    .unwrap();
    let path = folder.join("metrics.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "{\"t\":9,\"step\":3,\"val").unwrap();
    folder
}
