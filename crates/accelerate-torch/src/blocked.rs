//! How long a thread did nothing but wait for other ranks.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static BLOCKED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// How long this thread was blocked by other ranks, since it began.
///
/// [`Work::wait`](crate::Work::wait) counts, every operation that waits for itself, what
/// [`autograd::backward_of_reducers`](crate::autograd::backward_of_reducers) waits for, and whatever
/// a [`Blocked`] surrounds. Communication that goes on while the thread computes does not count, nor
/// what the streams of a GPU wait for.
#[must_use]
pub fn time_blocked() -> Duration {
    BLOCKED.get()
}

/// Adds a time that was measured elsewhere.
pub(crate) fn add(time: Duration) {
    BLOCKED.set(BLOCKED.get().saturating_add(time));
}

/// This thread waits for other ranks until this is dropped. Within another one it counts nothing.
#[derive(Debug)]
#[must_use = "the waiting ends when it is dropped"]
pub struct Blocked {
    since: Option<Instant>,
}

impl Blocked {
    /// The waiting begins.
    pub fn begin() -> Self {
        let is_outermost = !IS_WAITING.replace(true);
        Self {
            since: is_outermost.then(Instant::now),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            IS_WAITING.set(false);
            add(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(20);

    #[test]
    fn only_the_outermost_wait_of_a_thread_counts() {
        let whole = Instant::now();
        let before = time_blocked();
        {
            let _outer = Blocked::begin();
            let _inner = Blocked::begin();
            thread::sleep(PAUSE);
        }
        let waited = time_blocked() - before;
        assert!(waited >= PAUSE && waited <= whole.elapsed(), "{waited:?}");
        let elsewhere = thread::spawn(|| {
            drop(Blocked::begin());
            time_blocked()
        });
        assert!(elsewhere.join().unwrap() < PAUSE);
        thread::sleep(PAUSE);
        assert_eq!(time_blocked() - before, waited);
    }
}
