//! Numbers for comparing with other programs that do the same.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// When the program was started, in seconds since 1970; set by whoever compares.
const STARTED: &str = "ACCELERATE_BENCH_T0";

/// What one rank measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    first_step_s: Option<f64>,
    step_s: Vec<f64>,
    peak_rss_bytes: Option<u64>,
    losses: Vec<f64>,
    #[serde(skip)]
    started: f64,
    #[serde(skip)]
    last: Instant,
}

impl Measurement {
    /// Starts the clock of the first step.
    pub(crate) fn start() -> Self {
        Self {
            first_step_s: None,
            step_s: Vec::new(),
            peak_rss_bytes: None,
            losses: Vec::new(),
            started: env::var(STARTED)
                .ok()
                .and_then(|t| t.parse().ok())
                .unwrap_or_else(now),
            last: Instant::now(),
        }
    }

    /// Ends a step and starts the next.
    pub(crate) fn step(&mut self, loss: f64) {
        self.first_step_s
            .get_or_insert_with(|| now() - self.started);
        self.losses.push(loss);
        self.step_s.push(self.last.elapsed().as_secs_f64());
        self.last = Instant::now();
    }

    /// Writes the numbers of this rank to `PATH.rankN.json`.
    pub(crate) fn write(mut self, path: &Path, rank: usize) -> io::Result<()> {
        self.peak_rss_bytes = peak_memory();
        let mut file = path.as_os_str().to_owned();
        file.push(format!(".rank{rank}.json"));
        serde_json::to_writer(File::create(PathBuf::from(file))?, &self)?;
        Ok(())
    }
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs_f64()
}

/// The most memory that this process held; Linux only.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
