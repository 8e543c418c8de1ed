//! Who failed first, when a connection breaks.
//!
//! A rank that fails leaves its number in the store of the job and closes its connections. Whoever
//! then finds a connection closed looks there, and closes its own, so that every rank learns it and
//! nobody waits.

use std::time::Duration;

use accelerate_torch::{self as torch, ProcessGroup};

use crate::collectives::within;

/// How long a question may take: who serves the store may be gone or stopped.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a note that is there may take to be read.
const ANSWER: Duration = Duration::from_secs(1);

/// The rank that failed first: `rank`, unless another one is noted already.
pub(super) fn note(group: &ProcessGroup, pipeline: &str, rank: usize) -> usize {
    let (group, key) = (group.clone(), key(pipeline));
    let asked = within(LIMIT, move || {
        group
            .store()
            .compare_set(&key, b"", rank.to_string().as_bytes())
    });
    asked.and_then(read).unwrap_or(rank)
}

/// The rank that is noted, if one is.
pub(super) fn noted(group: &ProcessGroup, pipeline: &str) -> Option<usize> {
    let (group, key) = (group.clone(), key(pipeline));
    let asked = within(LIMIT, move || -> torch::Result<Vec<u8>> {
        match group.store().contains(&key)? {
            true => group.store().get(&key, ANSWER),
            false => Ok(Vec::new()),
        }
    });
    asked.and_then(read)
}

fn read(note: torch::Result<Vec<u8>>) -> Option<usize> {
    String::from_utf8(note.ok()?).ok()?.parse().ok()
}

fn key(pipeline: &str) -> String {
    format!("accelerate/pipeline/{pipeline}/failed")
}
