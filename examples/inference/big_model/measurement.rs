//! What a run took.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;

/// What a run took, as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    /// From files to a model that computes.
    pub(crate) load_seconds: f64,
    /// From the start of the program to the first token.
    pub(crate) first_token_seconds: f64,
    /// Of the tokens after the first; none if there was no other.
    pub(crate) tokens_per_second: Option<f64>,
    /// The most memory that is the process's own, pages of files not among it; looked at now and
    /// then. None where the system does not tell.
    pub(crate) peak_private_bytes: Option<u64>,
    /// The ids of the new tokens.
    pub(crate) tokens: Vec<i64>,
}

/// Looks at the memory of this process now and then.
pub(crate) struct MemoryWatch {
    peak: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (peak, ended) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (theirs, until) = (Arc::clone(&peak), Arc::clone(&ended));
        let watch = move || {
            while !until.load(Ordering::Relaxed) {
                theirs.fetch_max(private_bytes().unwrap_or(0), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        };
        let thread = thread::Builder::new()
            .name("memory".to_owned())
            .spawn(watch)?;
        Ok(Self {
            peak,
            ended,
            thread: Some(thread),
        })
    }

    /// The most that was seen.
    pub(crate) fn peak(&self) -> Option<u64> {
        let now = private_bytes()?;
        Some(self.peak.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// The memory that is this process's own.
fn private_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
