use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to use what all tests of one program share; ends when it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when it is dropped"]
pub struct Turn {
    _held: MutexGuard<'static, ()>,
}

/// Waits until no other test of this program has the turn.
///
/// PyTorch's default generator is one for the whole process, and more draws from it than meets the
/// eye: new layers, dropout, every start of a loop over a loader. Where one test of a program seeds
/// it, *every* test of that program that could draw takes its turn first. Tests of [`ranks`] need
/// none: a rank is a process that runs one test.
///
/// [`ranks`]: crate::ranks
pub fn turn() -> Turn {
    static HELD: Mutex<()> = Mutex::new(());
    Turn {
        _held: HELD.lock().unwrap_or_else(PoisonError::into_inner),
    }
}
