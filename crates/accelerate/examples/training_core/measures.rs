//! The numbers that one rank measured, and the file that they go to.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use accelerate::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};

/// What one rank measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measures {
    /// By name, in seconds or bytes.
    measures: Map<String, Value>,
    /// What came out of the work: equal on both sides if both did the same.
    checks: Map<String, Value>,
}

impl Measures {
    /// Notes how long something took.
    pub(crate) fn time(&mut self, name: impl Into<String>, seconds: f64) {
        self.measures.insert(name.into(), seconds.into());
    }

    /// Notes how many bytes something took.
    pub(crate) fn bytes(&mut self, name: impl Into<String>, bytes: u64) {
        self.measures.insert(name.into(), bytes.into());
    }

    /// Notes what came out.
    pub(crate) fn check(&mut self, name: impl Into<String>, value: f64) {
        self.checks.insert(name.into(), value.into());
    }

    /// Writes the numbers of this rank to `PATH.rankN.json`.
    pub(crate) fn write(&self, path: &Path, rank: usize) -> io::Result<()> {
        let mut file = path.as_os_str().to_owned();
        file.push(format!(".rank{rank}.json"));
        serde_json::to_writer(File::create(PathBuf::from(file))?, self)?;
        Ok(())
    }
}

/// How many bytes this process has written: to connections, where it writes nothing else.
///
/// Only Linux tells.
pub(crate) fn written() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io").map_err(Error::data)?;
    let number = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    number
        .unwrap_or_default()
        .trim()
        .parse()
        .map_err(Error::data)
}

/// The middle one, in seconds.
pub(crate) fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(f64::NAN, Duration::as_secs_f64)
}

/// The median time of `work` over `rounds` calls after some that warm up; `before` is not timed.
pub(crate) fn median_of(
    rounds: usize,
    mut before: impl FnMut() -> Result<()>,
    mut work: impl FnMut() -> Result<()>,
) -> Result<f64> {
    const WARM_UP: usize = 10;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..WARM_UP + rounds {
        before()?;
        let start = Instant::now();
        work()?;
        if round >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    Ok(median(times))
}
