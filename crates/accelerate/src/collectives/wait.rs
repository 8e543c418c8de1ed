use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{Blocked, Work};

use crate::Result;

/// How often a transfer is looked at: soon at first, then less often.
const FIRST: Duration = Duration::from_micros(20);
const LAST: Duration = Duration::from_millis(5);

/// Waits for a transfer, and calls `late` once if it takes longer than `patience`.
pub(super) fn patiently(work: Work, patience: Duration, late: impl FnOnce()) -> Result<()> {
    let _blocked = Blocked::begin();
    let start = Instant::now();
    let mut pause = FIRST;
    while !work.is_completed()? {
        if start.elapsed() >= patience {
            late();
            break;
        }
        thread::sleep(pause);
        pause = LAST.min(2 * pause);
    }
    Ok(work.wait()?)
}
